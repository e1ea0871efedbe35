//! From a parsed statement to its kind.

use turso_parser::ast::*;

use super::check::{Inspector, Place};
use super::facts_of::has_do_update;
use super::refusals;
use super::schema_facts::{Action, SchemaFacts};
use super::syntax::sql_error;
use super::{BeginKind, DdlInfo, Inspected, Kind, WriteInfo};
use super::{check, ddl, objects, pragmas, reach, rewrite, walk};
use crate::error::Result;
use crate::names;

/// Classifies a statement; `text` is how it was written.
pub(super) fn classify(command: &mut Cmd, text: &str, facts: &SchemaFacts) -> Result<Inspected> {
    let explained = !matches!(command, Cmd::Stmt(_));
    let statement = rewrite::statement_of(command);
    if explained {
        check_explained(statement)?;
    }
    match statement {
        Stmt::Select(_) => select(command, text, facts),
        Stmt::Insert { .. } | Stmt::Update(_) | Stmt::Delete { .. } => {
            let inspected = write(command, text, facts)?;
            Ok(if explained {
                explain_write(inspected)
            } else {
                inspected
            })
        }
        Stmt::Begin { typ, .. } => Ok(begin(*typ)),
        Stmt::Commit { .. } => Ok(plain(Kind::Commit, "COMMIT".into())),
        Stmt::Rollback { savepoint_name, .. } => rollback(savepoint_name.as_ref()),
        Stmt::Savepoint { name } => named(name, "SAVEPOINT", Kind::Savepoint),
        Stmt::Release { name } => named(name, "RELEASE", Kind::Release),
        Stmt::Reindex { name } => reindex(name.as_ref(), text, facts),
        Stmt::Pragma { name, body } => {
            let ruling = pragmas::rule(name, body.as_ref(), facts)?;
            let sql = ruling.sql.unwrap_or_else(|| text.to_owned());
            Ok(plain(ruling.kind, sql))
        }
        other => match ddl::check(other, facts, Place::Statement)? {
            Some(info) => schema_change(command, text, info),
            None => Err(refuse(other)),
        },
    }
}

/// BEGIN in one of its forms.
pub(super) fn begin(kind: Option<TransactionType>) -> Inspected {
    match kind {
        None | Some(TransactionType::Deferred) => {
            plain(Kind::Begin(BeginKind::Deferred), "BEGIN".into())
        }
        Some(
            TransactionType::Immediate | TransactionType::Exclusive | TransactionType::Concurrent,
        ) => plain(Kind::Begin(BeginKind::Immediate), "BEGIN IMMEDIATE".into()),
    }
}

/// A statement that is what it is.
pub(super) fn plain(kind: Kind, sql: String) -> Inspected {
    Inspected {
        kind,
        sql,
        uses_session_values: false,
        touches_session_triggers: false,
    }
}

/// The SELECT of a CREATE TABLE AS runs now, so it may have been rewritten. Everything else
/// runs, and is logged, in its own words.
fn schema_change(command: &mut Cmd, text: &str, info: DdlInfo) -> Result<Inspected> {
    if !matches!(info, DdlInfo::CreateTableAs { .. }) {
        return Ok(plain(Kind::Ddl(info), text.to_owned()));
    }
    let uses_session_values = check::uses_session_values(rewrite::statement_of(command));
    Ok(Inspected {
        uses_session_values,
        ..plain(Kind::Ddl(info), rewrite::print(command)?)
    })
}

/// To explain a write changes nothing, although the engine compiles it as a write.
fn explain_write(inspected: Inspected) -> Inspected {
    Inspected {
        kind: Kind::Read,
        touches_session_triggers: false,
        ..inspected
    }
}

/// REINDEX writes no row: the indexes of other nodes are not touched.
fn reindex(name: Option<&QualifiedName>, text: &str, facts: &SchemaFacts) -> Result<Inspected> {
    if let Some(name) = name {
        objects::check_object(name)?;
    }
    let kind = Kind::Write(WriteInfo {
        table: name.map_or("", |name| name.name.as_str()).to_owned(),
        returning: false,
        deferred_keys: facts.has_deferred_keys(),
        sets_off_more: false,
    });
    Ok(plain(kind, text.to_owned()))
}

fn rollback(savepoint: Option<&Name>) -> Result<Inspected> {
    match savepoint {
        Some(name) => named(name, "ROLLBACK TO", Kind::RollbackTo),
        None => Ok(plain(Kind::Rollback, "ROLLBACK".into())),
    }
}

fn named(name: &Name, verb: &str, kind: fn(String) -> Kind) -> Result<Inspected> {
    let name = name.as_str();
    objects::check_name(name)?;
    Ok(plain(
        kind(name.to_owned()),
        format!("{verb} {}", names::quote(name)),
    ))
}

fn select(command: &mut Cmd, text: &str, facts: &SchemaFacts) -> Result<Inspected> {
    let mut inspector = Inspector::new(facts, Place::Statement);
    walk::statement(rewrite::statement_of(command), &mut inspector)?;
    finish(command, text, &inspector, Kind::Read, false)
}

fn write(command: &mut Cmd, text: &str, facts: &SchemaFacts) -> Result<Inspected> {
    let statement = rewrite::statement_of(command);
    let target = check_target(statement, facts)?;
    let mut inspector = Inspector::new(facts, Place::Statement);
    walk::statement(statement, &mut inspector)?;
    if objects::is_sequence_table(&target.table) {
        check_sequence_write(statement, facts)?;
        inspector.rewritten = true;
    }
    let touches = reach::touches_session_triggers(facts, &target.table, target.action);
    let sets_off_more = reach::sets_off_more(facts, &target.table, target.action);
    let kind = Kind::Write(WriteInfo {
        table: target.table,
        returning: target.returning,
        deferred_keys: facts.has_deferred_keys(),
        sets_off_more,
    });
    finish(command, text, &inspector, kind, touches)
}

fn finish(
    command: &mut Cmd,
    text: &str,
    inspector: &Inspector<'_>,
    kind: Kind,
    touches_session_triggers: bool,
) -> Result<Inspected> {
    inspector.finish()?;
    let sql = if inspector.rewritten {
        rewrite::print(command)?
    } else {
        text.to_owned()
    };
    Ok(Inspected {
        kind,
        sql,
        uses_session_values: inspector.session_values,
        touches_session_triggers,
    })
}

/// The table that a statement writes to, and how.
struct Target {
    table: String,
    action: Action,
    returning: bool,
}

fn check_target(statement: &Stmt, facts: &SchemaFacts) -> Result<Target> {
    let (name, action, returning) = match statement {
        Stmt::Insert {
            or_conflict,
            tbl_name,
            body,
            returning,
            ..
        } => {
            let upsert = match body {
                InsertBody::Select(_, upsert) => has_do_update(upsert.as_deref()),
                InsertBody::DefaultValues => false,
            };
            let replace = *or_conflict == Some(ResolveType::Replace);
            (tbl_name, Action::Insert { replace, upsert }, returning)
        }
        Stmt::Update(update) => {
            if update.or_conflict == Some(ResolveType::Replace) {
                let table = update.tbl_name.name.as_str();
                return Err(refusals::UPDATE_OR_REPLACE.refuse(table));
            }
            (&update.tbl_name, Action::Update, &update.returning)
        }
        Stmt::Delete {
            tbl_name,
            returning,
            ..
        } => (tbl_name, Action::Delete, returning),
        _ => unreachable!("called for statements that write"),
    };
    objects::check_object(name)?;
    let table = name.name.as_str();
    if matches!(action, Action::Insert { replace: true, .. }) {
        reach::check_replace(facts, table)?;
    }
    if objects::is_schema_table(table) {
        return Err(refusals::SCHEMA_TABLE_WRITE.refuse(table));
    }
    if names::is_reserved(table) && !objects::is_sequence_table(table) {
        return Err(sql_error(format!("no such table: {table}")));
    }
    Ok(Target {
        table: table.to_owned(),
        action,
        returning: !returning.is_empty(),
    })
}

/// Migration tools and dumps write to `sqlite_sequence`. The row of the engine's own log is
/// kept out of it.
fn check_sequence_write(statement: &mut Stmt, facts: &SchemaFacts) -> Result<()> {
    let refused = || Err(refusals::SEQUENCE_TABLE_WRITE.refuse(""));
    match statement {
        Stmt::Update(update) => {
            let mut columns = update.sets.iter().flat_map(|set| &set.col_names);
            let only_seq = columns.all(|column| names::same(column.as_str(), "seq"));
            if !only_seq || update.from.is_some() || update.tbl_name.alias.is_some() {
                return refused();
            }
            rewrite::spare_own_sequence(facts, &mut update.where_clause);
            Ok(())
        }
        Stmt::Delete {
            tbl_name,
            where_clause,
            ..
        } => {
            if tbl_name.alias.is_some() {
                return refused();
            }
            rewrite::spare_own_sequence(facts, where_clause);
            Ok(())
        }
        Stmt::Insert {
            columns,
            body: InsertBody::Select(select, None),
            ..
        } => {
            let at = match columns.as_slice() {
                [] => Some(0),
                named => named.iter().position(|c| names::same(c.as_str(), "name")),
            };
            match (at, &select.body.select) {
                (Some(at), OneSelect::Values(rows)) if select.body.compounds.is_empty() => {
                    rows.iter().try_for_each(|row| check_sequence_name(row, at))
                }
                _ => refused(),
            }
        }
        _ => refused(),
    }
}

fn check_sequence_name(row: &[Box<Expr>], at: usize) -> Result<()> {
    match row.get(at).map(AsRef::as_ref) {
        Some(Expr::Literal(Literal::String(text))) => {
            let name = text.trim_matches('\'');
            objects::check_name(name)
        }
        _ => Err(refusals::SEQUENCE_TABLE_WRITE.refuse("")),
    }
}

fn check_explained(statement: &Stmt) -> Result<()> {
    match statement {
        Stmt::Select(_) | Stmt::Insert { .. } | Stmt::Update(_) | Stmt::Delete { .. } => Ok(()),
        _ => Err(refusals::EXPLAIN_SCHEMA.refuse("")),
    }
}

/// Statements that are refused whatever they say. Nothing is let through by default.
pub(super) fn refuse(statement: &Stmt) -> crate::error::Error {
    let refusal = match statement {
        Stmt::Attach { .. } | Stmt::Detach { .. } => refusals::ATTACH,
        Stmt::Vacuum { .. } => refusals::VACUUM,
        Stmt::Analyze { .. } => refusals::ANALYZE,
        Stmt::CreateVirtualTable(_) => refusals::VIRTUAL_TABLE,
        Stmt::CreateMaterializedView { .. } => refusals::MATERIALIZED_VIEW,
        Stmt::CreateType { .. }
        | Stmt::CreateDomain { .. }
        | Stmt::DropType { .. }
        | Stmt::DropDomain { .. } => refusals::CUSTOM_TYPE,
        Stmt::CreateSequence { .. } | Stmt::DropSequence { .. } => refusals::SEQUENCE,
        Stmt::Optimize { .. } => refusals::OPTIMIZE_INDEX,
        _ => refusals::STATEMENT,
    };
    refusal.refuse("")
}
