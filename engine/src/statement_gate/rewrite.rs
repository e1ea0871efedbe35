//! Changes to the parsed statement, and printing it again.
//!
//! Two things must not run as they are written. `sqlite_schema` also lists objects that are
//! Tidegate's own, and migration tools would try to drop them; so a condition joins the
//! WHERE clause. And `last_insert_rowid()` and its kin would answer for the connection that
//! happens to run the statement; so they become the session's values.
//!
//! Printing keeps the meaning but not the spacing, and the text of an expression is the name
//! of its column. So before printing, such columns get that text as an explicit alias.

use turso_parser::ast::*;

use super::functions::{FunctionRule, SessionFunction, function_rule};
use super::schema_facts::SchemaFacts;
use super::walk::Visitor;
use super::{SessionValues, objects, parse_command, walk};
use crate::error::Result;
use crate::names;

/// Replaces the functions that answer for a session by that session's values.
pub(super) fn bind_session_values(sql: &str, values: &SessionValues) -> Result<String> {
    let mut command = parse_command(sql)?;
    let mut binder = Binder { values };
    // Names first: the names of columns come from the text before the change.
    name_columns(&mut command)?;
    walk::statement(statement_of(&mut command), &mut binder)?;
    Ok(printed(&command))
}

/// Prints a changed statement.
pub(super) fn print(command: &mut Cmd) -> Result<String> {
    name_columns(command)?;
    Ok(printed(command))
}

/// The statement in an EXPLAIN, or the statement itself.
pub(super) fn statement_of(command: &mut Cmd) -> &mut Stmt {
    match command {
        Cmd::Explain(statement)
        | Cmd::Stmt(statement)
        | Cmd::ExplainQueryPlan {
            stmt: statement, ..
        } => statement,
    }
}

/// Gives the columns of a SELECT the names that they would have unprinted.
pub(super) fn name_columns_of(select: &mut Select) -> Result<()> {
    walk::select(select, &mut Namer)
}

/// Adds conditions to the WHERE clause of `clause`, so that the catalogue's tables in it
/// show no internal object. Says whether it did.
pub(super) fn hide_internal(
    facts: &SchemaFacts,
    clause: &FromClause,
    filter: &mut Option<Box<Expr>>,
) -> bool {
    let mut changed = false;
    for source in sources(clause) {
        if let Some((catalogue, qualifier)) = catalogue_of(source) {
            add_condition(filter, catalogue.condition(facts, &qualifier));
            changed = true;
        }
    }
    changed
}

/// Puts a subquery in the place of the catalogue's tables that have no condition in WHERE.
/// The TEMP catalogue, which is empty, always goes that way. Says whether it did.
pub(super) fn wrap_internal(facts: &SchemaFacts, clause: &mut FromClause, filtered: bool) -> bool {
    let mut changed = false;
    let joined = clause.joins.iter_mut().map(|join| &mut join.table);
    for source in std::iter::once(&mut clause.select).chain(joined) {
        changed |= wrap(facts, source, filtered);
    }
    changed
}

/// Adds `AND name is not the log's` to a statement that changes `sqlite_sequence`.
pub(super) fn spare_own_sequence(facts: &SchemaFacts, filter: &mut Option<Box<Expr>>) {
    let condition = Catalogue::Sequence.condition(facts, "sqlite_sequence");
    add_condition(filter, condition);
}

/// A table that lists objects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Catalogue {
    Schema,
    TempSchema,
    Sequence,
    TableList,
}

impl Catalogue {
    fn of(name: &str) -> Option<Self> {
        if objects::is_schema_table(name) {
            Some(Self::Schema)
        } else if objects::is_temp_schema_table(name) {
            Some(Self::TempSchema)
        } else if objects::is_sequence_table(name) {
            Some(Self::Sequence)
        } else if names::same(name, "pragma_table_list") {
            Some(Self::TableList)
        } else {
            None
        }
    }

    /// True for rows that clients may see. The engine makes `sqlite_sequence` for its log;
    /// clients see it when a table of theirs has an AUTOINCREMENT column, as in SQLite.
    fn condition(self, facts: &SchemaFacts, qualifier: &str) -> Box<Expr> {
        let column = match self {
            Self::Schema => "tbl_name",
            Self::TempSchema | Self::Sequence | Self::TableList => "name",
        };
        let column = format!("{}.{column}", names::quote(qualifier));
        let mut text = format!(
            "lower(substr({column}, 1, 10)) <> '_tidegate_' \
             AND lower(substr({column}, 1, 9)) <> 'turso_cdc' \
             AND lower(substr({column}, 1, 8)) <> '__turso_'"
        );
        if self == Self::Schema && !facts.has_autoincrement() {
            text.push_str(&format!(" AND {column} <> 'sqlite_sequence'"));
        }
        parse_expr(&text)
    }

    fn subquery(self, facts: &SchemaFacts) -> Select {
        let (columns, table) = match self {
            Self::Schema => ("type, name, tbl_name, rootpage, sql", "sqlite_schema"),
            Self::TempSchema => {
                return parse_select(
                    "SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema WHERE 0",
                );
            }
            Self::Sequence => ("name, seq", "sqlite_sequence"),
            Self::TableList => ("schema, name, type, ncol, wr, strict", "pragma_table_list"),
        };
        let condition = self.condition(facts, table);
        parse_select(&format!("SELECT {columns} FROM {table} WHERE {condition}"))
    }
}

fn sources(clause: &FromClause) -> impl Iterator<Item = &SelectTable> {
    let joined = clause.joins.iter().map(|join| join.table.as_ref());
    std::iter::once(clause.select.as_ref()).chain(joined)
}

/// A condition in WHERE is right where no join makes rows of NULLs.
pub(super) fn can_filter(clause: &FromClause) -> bool {
    clause.joins.iter().all(|join| match join.operator {
        JoinOperator::Comma | JoinOperator::TypedJoin(None) => true,
        JoinOperator::TypedJoin(Some(kind)) => !kind.intersects(JoinType::OUTER),
    })
}

fn catalogue_of(source: &SelectTable) -> Option<(Catalogue, String)> {
    let (SelectTable::Table(name, alias, _) | SelectTable::TableCall(name, _, alias)) = source
    else {
        return None;
    };
    let catalogue = Catalogue::of(name.name.as_str())?;
    if catalogue == Catalogue::TempSchema {
        return None;
    }
    let qualifier = alias.as_ref().map_or(&name.name, As::name);
    Some((catalogue, qualifier.as_str().to_owned()))
}

fn wrap(facts: &SchemaFacts, source: &mut Box<SelectTable>, filtered: bool) -> bool {
    let (SelectTable::Table(name, alias, _) | SelectTable::TableCall(name, _, alias)) =
        source.as_ref()
    else {
        return false;
    };
    let catalogue = match Catalogue::of(name.name.as_str()) {
        Some(Catalogue::TempSchema) => Catalogue::TempSchema,
        Some(catalogue) if !filtered => catalogue,
        _ => return false,
    };
    let alias = alias.as_ref().map_or(&name.name, As::name).clone();
    **source = SelectTable::Select(catalogue.subquery(facts), Some(As::As(alias)));
    true
}

fn add_condition(filter: &mut Option<Box<Expr>>, condition: Box<Expr>) {
    let condition = match filter.take() {
        Some(existing) => Box::new(Expr::Binary(
            Box::new(Expr::Parenthesized(vec![existing])),
            Operator::And,
            condition,
        )),
        None => condition,
    };
    *filter = Some(condition);
}

fn parse_select(sql: &str) -> Select {
    match parse_command(sql) {
        Ok(Cmd::Stmt(Stmt::Select(select))) => select,
        other => unreachable!("the gate's own text is a SELECT: {sql}: {other:?}"),
    }
}

fn parse_expr(text: &str) -> Box<Expr> {
    let select = parse_select(&format!("SELECT 1 WHERE {text}"));
    match select.body.select {
        OneSelect::Select {
            where_clause: Some(condition),
            ..
        } => Box::new(Expr::Parenthesized(vec![condition])),
        _ => unreachable!("the gate's own text has a WHERE clause: {text}"),
    }
}

/// A command prints itself with a semicolon.
fn printed(command: &Cmd) -> String {
    let mut text = command.to_string();
    text.truncate(text.trim_end_matches([';', ' ']).len());
    text
}

fn name_columns(command: &mut Cmd) -> Result<()> {
    walk::statement(statement_of(command), &mut Namer)
}

struct Namer;

impl Visitor for Namer {
    fn expr(&mut self, _: &mut Expr) -> Result<()> {
        Ok(())
    }

    fn from(&mut self, _: &mut FromClause, _: Option<&mut Option<Box<Expr>>>) -> Result<()> {
        Ok(())
    }

    /// A bare column is named after the column, whatever its text.
    fn columns(&mut self, columns: &mut [ResultColumn]) -> Result<()> {
        for column in columns {
            let ResultColumn::Expr(value, alias) = column else {
                continue;
            };
            let bare = matches!(
                value.as_ref(),
                Expr::Id(_) | Expr::Qualified(..) | Expr::DoublyQualified(..)
            );
            if let (false, Some(As::ImplicitColumnName(name))) = (bare, &*alias) {
                *alias = Some(As::As(Name::exact(name.as_str().to_owned())));
            }
        }
        Ok(())
    }
}

struct Binder<'v> {
    values: &'v SessionValues,
}

impl Visitor for Binder<'_> {
    fn expr(&mut self, expr: &mut Expr) -> Result<()> {
        if let Expr::FunctionCall { name, .. } | Expr::FunctionCallStar { name, .. } = expr
            && let FunctionRule::SessionValue(function) = function_rule(name.as_str())
        {
            *expr = integer(match function {
                SessionFunction::LastInsertRowid => self.values.last_insert_rowid,
                SessionFunction::Changes => self.values.changes,
                SessionFunction::TotalChanges => self.values.total_changes,
            });
        }
        Ok(())
    }

    fn from(&mut self, _: &mut FromClause, _: Option<&mut Option<Box<Expr>>>) -> Result<()> {
        Ok(())
    }
}

/// An integer literal. A negative one is in parentheses; the smallest has no literal.
fn integer(value: i64) -> Expr {
    let number = |n: u64| Expr::Literal(Literal::Numeric(n.to_string()));
    if value >= 0 {
        return number(value.unsigned_abs());
    }
    let inner = if value == i64::MIN {
        let almost = Expr::unary(UnaryOperator::Negative, number(i64::MAX.unsigned_abs()));
        Expr::binary(almost, Operator::Subtract, number(1))
    } else {
        Expr::unary(UnaryOperator::Negative, number(value.unsigned_abs()))
    };
    Expr::Parenthesized(vec![Box::new(inner)])
}
