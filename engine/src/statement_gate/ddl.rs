//! Statements that change the schema.
//!
//! A table, index, view or trigger is judged by its text, by what it calls and reads, and
//! by what it makes possible together with the objects that are there.

use turso_parser::ast::*;

use super::check::{Inspector, Place};
use super::refusals;
use super::schema_facts::SchemaFacts;
use super::syntax::sql_error;
use super::{DdlInfo, objects, rewrite, walk};
use crate::error::Result;
use crate::names;
use crate::schema::TableShape;

/// As in SQLite.
const COLUMNS_MAX: usize = 2_000;

/// Checks a statement that changes the schema. `Place::Stored` says that it comes from the
/// schema table of an existing file, whose facts include it already.
pub(super) fn check(
    statement: &mut Stmt,
    facts: &SchemaFacts,
    place: Place,
) -> Result<Option<DdlInfo>> {
    let place = match place {
        Place::Stored => Place::Stored,
        Place::Statement | Place::Schema => Place::Schema,
    };
    let info = match statement {
        Stmt::CreateTable { .. } => return create_table(statement, facts, place).map(Some),
        Stmt::CreateView {
            temporary,
            view_name,
            ..
        } => {
            check_temp(*temporary, view_name)?;
            objects::check_new_object(view_name)?;
            DdlInfo::Logged
        }
        Stmt::CreateTrigger { .. } => {
            check_trigger(statement, facts)?;
            DdlInfo::Trigger
        }
        Stmt::CreateIndex { .. } => {
            check_index(statement)?;
            DdlInfo::Logged
        }
        Stmt::AlterTable(alter) => {
            check_alter(alter)?;
            DdlInfo::Logged
        }
        Stmt::DropTable { tbl_name: name, .. }
        | Stmt::DropView {
            view_name: name, ..
        }
        | Stmt::DropIndex { idx_name: name, .. } => {
            check_drop(name)?;
            DdlInfo::Logged
        }
        Stmt::DropTrigger { trigger_name, .. } => {
            check_drop(trigger_name)?;
            DdlInfo::Trigger
        }
        _ => return Ok(None),
    };
    finish(statement, facts, place)?;
    Ok(Some(info))
}

/// Checks what the statement stores, and what the schema would be with it.
fn finish(statement: &mut Stmt, facts: &SchemaFacts, place: Place) -> Result<()> {
    let mut inspector = Inspector::new(facts, place);
    walk::statement(statement, &mut inspector)?;
    inspector.finish()?;
    let is_trigger = matches!(statement, Stmt::CreateTrigger { .. });
    if inspector.session_values && !is_trigger {
        return Err(refusals::SESSION_VALUE_IN_SCHEMA.refuse(""));
    }
    if place == Place::Stored {
        return Ok(());
    }
    let mut after = facts.clone();
    after.apply(statement);
    check_rowid_names(statement, &after)?;
    let before: Vec<_> = facts.unsafe_bodies().map(|(name, _)| name).collect();
    let new = after
        .unsafe_bodies()
        .find(|(name, _)| !before.contains(name));
    match new {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

fn create_table(statement: &mut Stmt, facts: &SchemaFacts, place: Place) -> Result<DdlInfo> {
    let Stmt::CreateTable {
        temporary,
        if_not_exists,
        tbl_name,
        body,
    } = statement
    else {
        unreachable!("called for CREATE TABLE");
    };
    check_temp(*temporary, tbl_name)?;
    if place != Place::Stored || !names::is_reserved(tbl_name.name.as_str()) {
        objects::check_new_object(tbl_name)?;
    }
    match body {
        CreateTableBody::AsSelect(select) => {
            return create_table_as(tbl_name, *if_not_exists, select, facts);
        }
        CreateTableBody::ColumnsAndConstraints {
            columns,
            constraints,
            options,
        } => {
            let name = tbl_name.name.as_str();
            if options.contains_without_rowid() {
                return Err(refusals::WITHOUT_ROWID.refuse(name));
            }
            if columns.len() > COLUMNS_MAX {
                return Err(sql_error(format!("too many columns on {name}")));
            }
            columns.iter().try_for_each(check_column)?;
            constraints.iter().try_for_each(check_constraint)?;
        }
    }
    finish(statement, facts, place)?;
    TableShape::parse(&statement.to_string())?;
    Ok(DdlInfo::Logged)
}

/// CREATE TABLE AS captures no row, so it is run as two statements; the first tells the
/// engine's own text of the table. As a subquery the SELECT keeps its own LIMIT;
/// names and types come out the same.
fn create_table_as(
    name: &QualifiedName,
    if_not_exists: bool,
    select: &mut Select,
    facts: &SchemaFacts,
) -> Result<DdlInfo> {
    let mut inspector = Inspector::new(facts, Place::Statement);
    walk::select(select, &mut inspector)?;
    inspector.finish()?;
    if inspector.parameters {
        return Err(refusals::CREATE_AS_PARAMETERS.refuse(name.name.as_str()));
    }
    rewrite::name_columns_of(select)?;
    let table = names::quote(name.name.as_str());
    Ok(DdlInfo::CreateTableAs {
        table: name.name.as_str().to_owned(),
        if_not_exists,
        create_empty: format!("CREATE TABLE {table} AS SELECT * FROM ({select}) LIMIT 0"),
        insert: format!("INSERT INTO {table} {select}"),
    })
}

fn check_column(column: &ColumnDefinition) -> Result<()> {
    let name = column.col_name.as_str();
    if column.col_type.as_ref().is_some_and(Type::is_array) {
        return Err(refusals::CUSTOM_TYPE.refuse(name));
    }
    for constraint in &column.constraints {
        match &constraint.constraint {
            ColumnConstraint::PrimaryKey {
                conflict_clause: Some(ResolveType::Replace),
                ..
            }
            | ColumnConstraint::Unique(Some(ResolveType::Replace)) => {
                return Err(refusals::ON_CONFLICT_REPLACE.refuse(name));
            }
            ColumnConstraint::Generated { .. } => {
                return Err(refusals::GENERATED_COLUMN.refuse(name));
            }
            ColumnConstraint::ForeignKey { clause, .. } => {
                objects::check_name(clause.tbl_name.as_str())?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_constraint(constraint: &NamedTableConstraint) -> Result<()> {
    match &constraint.constraint {
        TableConstraint::PrimaryKey {
            conflict_clause: Some(ResolveType::Replace),
            ..
        }
        | TableConstraint::Unique {
            conflict_clause: Some(ResolveType::Replace),
            ..
        } => Err(refusals::ON_CONFLICT_REPLACE.refuse("")),
        TableConstraint::ForeignKey { clause, .. } => objects::check_name(clause.tbl_name.as_str()),
        _ => Ok(()),
    }
}

/// ALTER TABLE can take the last name of the rowid, too.
fn check_rowid_names(statement: &Stmt, after: &SchemaFacts) -> Result<()> {
    let Stmt::AlterTable(alter) = statement else {
        return Ok(());
    };
    let Some(table) = after.table(alter.name.name.as_str()) else {
        return Ok(());
    };
    let taken = |alias: &str| table.columns.iter().any(|c| names::same(c, alias));
    if ["rowid", "oid", "_rowid_"].into_iter().all(taken) {
        return Err(refusals::ROWID_SHADOWED.refuse(&table.name));
    }
    Ok(())
}

fn check_index(statement: &Stmt) -> Result<()> {
    let Stmt::CreateIndex {
        idx_name,
        tbl_name,
        using,
        with_clause,
        ..
    } = statement
    else {
        unreachable!("called for CREATE INDEX");
    };
    objects::check_new_object(idx_name)?;
    objects::check_name(tbl_name.as_str())?;
    if names::is_reserved(tbl_name.as_str()) {
        return Err(sql_error(format!(
            "table {} may not be indexed",
            tbl_name.as_str()
        )));
    }
    if using.is_some() || !with_clause.is_empty() {
        return Err(refusals::INDEX_METHOD.refuse(idx_name.name.as_str()));
    }
    Ok(())
}

fn check_trigger(statement: &Stmt, facts: &SchemaFacts) -> Result<()> {
    let Stmt::CreateTrigger {
        temporary,
        trigger_name,
        time,
        tbl_name,
        commands,
        ..
    } = statement
    else {
        unreachable!("called for CREATE TRIGGER");
    };
    check_temp(*temporary, trigger_name)?;
    objects::check_new_object(trigger_name)?;
    objects::check_object(tbl_name)?;
    let table = tbl_name.name.as_str();
    if names::is_reserved(table) {
        return Err(sql_error("cannot create trigger on system table".into()));
    }
    if *time == Some(TriggerTime::InsteadOf) || facts.is_view(table) {
        return Err(refusals::INSTEAD_OF_TRIGGER.refuse(trigger_name.name.as_str()));
    }
    commands.iter().try_for_each(check_trigger_command)
}

fn check_trigger_command(command: &TriggerCmd) -> Result<()> {
    let table = match command {
        TriggerCmd::Update {
            or_conflict: Some(ResolveType::Replace),
            tbl_name,
            ..
        } => return Err(refusals::UPDATE_OR_REPLACE.refuse(tbl_name.as_str())),
        TriggerCmd::Update { tbl_name, .. }
        | TriggerCmd::Insert { tbl_name, .. }
        | TriggerCmd::Delete { tbl_name, .. } => tbl_name.as_str(),
        TriggerCmd::Select(_) => return Ok(()),
    };
    objects::check_name(table)?;
    if objects::is_sequence_table(table) {
        return Err(refusals::SEQUENCE_TABLE_WRITE.refuse("in a trigger"));
    }
    if names::is_reserved(table) {
        return Err(refusals::SCHEMA_TABLE_WRITE.refuse(table));
    }
    Ok(())
}

fn check_alter(alter: &AlterTable) -> Result<()> {
    objects::check_object(&alter.name)?;
    let table = alter.name.name.as_str();
    if names::is_reserved(table) {
        return Err(sql_error(format!("table {table} may not be altered")));
    }
    match &alter.body {
        AlterTableBody::RenameTo(new) => {
            objects::check_new_object(&QualifiedName::single(new.clone()))
        }
        AlterTableBody::AddColumn(column) => check_column(column),
        AlterTableBody::AlterColumn { .. } => Err(refusals::ALTER_COLUMN.refuse(table)),
        AlterTableBody::RenameColumn { .. } | AlterTableBody::DropColumn(_) => Ok(()),
    }
}

fn check_drop(name: &QualifiedName) -> Result<()> {
    objects::check_object(name)?;
    if names::is_reserved(name.name.as_str()) {
        return Err(sql_error(format!(
            "{} may not be dropped",
            name.name.as_str()
        )));
    }
    Ok(())
}

fn check_temp(temporary: bool, name: &QualifiedName) -> Result<()> {
    let schema = name.db_name.as_ref().map(Name::as_str);
    if temporary || schema.is_some_and(|s| names::same(s, "temp")) {
        return Err(refusals::TEMP.refuse(name.name.as_str()));
    }
    Ok(())
}
