//! From the parsed text of an object to what the gate keeps of it.

use turso_parser::ast::*;

use super::check;
use super::schema_facts::{Action, Command, Event, ForeignKey, TableFacts, TriggerFacts};

/// A table by its CREATE TABLE.
pub(super) fn table_facts(name: &str, body: &CreateTableBody) -> TableFacts {
    let mut table = TableFacts {
        name: name.to_owned(),
        ..TableFacts::default()
    };
    let CreateTableBody::ColumnsAndConstraints {
        columns,
        constraints,
        ..
    } = body
    else {
        return table;
    };
    columns.iter().for_each(|c| add_column(&mut table, c));
    for constraint in constraints {
        match &constraint.constraint {
            TableConstraint::ForeignKey {
                columns,
                clause,
                defer_clause,
            } => table.foreign_keys.push(ForeignKey::new(
                indexed_names(columns),
                clause,
                defer_clause.as_ref(),
            )),
            TableConstraint::PrimaryKey {
                columns,
                auto_increment,
                ..
            } => {
                table.autoincrement |= *auto_increment;
                table.primary_key = sorted_names(columns);
            }
            TableConstraint::Unique { .. } | TableConstraint::Check { .. } => {}
        }
    }
    table
}

/// One more column, with the constraints written behind it.
pub(super) fn add_column(table: &mut TableFacts, column: &ColumnDefinition) {
    let name = column.col_name.as_str().to_owned();
    for constraint in &column.constraints {
        match &constraint.constraint {
            ColumnConstraint::ForeignKey {
                clause,
                defer_clause,
            } => table.foreign_keys.push(ForeignKey::new(
                vec![name.clone()],
                clause,
                defer_clause.as_ref(),
            )),
            ColumnConstraint::PrimaryKey { auto_increment, .. } => {
                table.autoincrement |= *auto_increment;
                table.primary_key = vec![name.clone()];
            }
            _ => {}
        }
    }
    table.columns.push(name);
}

fn indexed_names(columns: &[IndexedColumn]) -> Vec<String> {
    let names = columns.iter().map(|c| c.col_name.as_str().to_owned());
    names.collect()
}

/// Names of key columns; a column with a COLLATE is still that column.
fn sorted_names(columns: &[SortedColumn]) -> Vec<String> {
    let name = |column: &SortedColumn| match column.expr.as_ref() {
        Expr::Id(name) | Expr::Name(name) => Some(name.as_str().to_owned()),
        Expr::Collate(inner, _) => match inner.as_ref() {
            Expr::Id(name) | Expr::Name(name) => Some(name.as_str().to_owned()),
            _ => None,
        },
        _ => None,
    };
    columns.iter().filter_map(name).collect()
}

/// A trigger by its CREATE TRIGGER.
pub(super) fn trigger_facts(statement: &Stmt) -> Option<TriggerFacts> {
    let Stmt::CreateTrigger {
        trigger_name,
        event,
        tbl_name,
        commands,
        ..
    } = statement
    else {
        return None;
    };
    Some(TriggerFacts {
        name: trigger_name.name.as_str().to_owned(),
        table: tbl_name.name.as_str().to_owned(),
        event: Event::of(event),
        commands: commands.iter().filter_map(command_facts).collect(),
        uses_session_values: check::uses_session_values(statement),
    })
}

fn command_facts(command: &TriggerCmd) -> Option<Command> {
    let (action, table) = match command {
        TriggerCmd::Update { tbl_name, .. } => (Action::Update, tbl_name),
        TriggerCmd::Delete { tbl_name, .. } => (Action::Delete, tbl_name),
        TriggerCmd::Insert {
            or_conflict,
            tbl_name,
            upsert,
            ..
        } => {
            let action = Action::Insert {
                replace: *or_conflict == Some(ResolveType::Replace),
                upsert: has_do_update(upsert.as_deref()),
            };
            (action, tbl_name)
        }
        TriggerCmd::Select(_) => return None,
    };
    Some(Command {
        action,
        table: table.as_str().to_owned(),
    })
}

/// True when an ON CONFLICT clause updates.
pub(super) fn has_do_update(upsert: Option<&Upsert>) -> bool {
    let mut next = upsert;
    while let Some(clause) = next {
        if matches!(clause.do_clause, UpsertDo::Set { .. }) {
            return true;
        }
        next = clause.next.as_deref();
    }
    false
}

impl Event {
    /// The event that a trigger is declared for.
    pub(super) fn of(event: &TriggerEvent) -> Self {
        match event {
            TriggerEvent::Delete => Self::Delete,
            TriggerEvent::Insert => Self::Insert,
            TriggerEvent::Update | TriggerEvent::UpdateOf(_) => Self::Update,
        }
    }
}

impl ForeignKey {
    fn new(
        columns: Vec<String>,
        clause: &ForeignKeyClause,
        defer: Option<&DeferSubclause>,
    ) -> Self {
        let mut key = Self {
            columns,
            parent: clause.tbl_name.as_str().to_owned(),
            parent_columns: indexed_names(&clause.columns),
            on_delete: RefAct::NoAction,
            on_update: RefAct::NoAction,
            deferred: defer.is_some_and(|d| {
                d.deferrable && d.init_deferred == Some(InitDeferredPred::InitiallyDeferred)
            }),
        };
        for arg in &clause.args {
            match arg {
                RefArg::OnDelete(action) => key.on_delete = *action,
                RefArg::OnUpdate(action) => key.on_update = *action,
                RefArg::OnInsert(_) | RefArg::Match(_) => {}
            }
        }
        key
    }
}
