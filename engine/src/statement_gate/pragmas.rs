//! Which PRAGMAs run, and as what.
//!
//! The engine answers a PRAGMA that it does not know with nothing, and obeys many that would
//! break replication (`journal_mode`, `synchronous`, capture itself). So every name has a
//! rule here, and a name without one is an error. Three kinds deserve a word: **hints**
//! (cache sizes, time-outs) are accepted and ignored, because they change no result; a
//! **fixed** setting answers with the value it has here, and accepts just that value;
//! `foreign_keys` belongs to the session, which is why it never reaches a connection.

use turso_parser::ast::{Expr, Literal, PragmaBody, QualifiedName, UnaryOperator};

use super::foreign_keys;
use super::refusals::{self, Refusal};
use super::schema_facts::SchemaFacts;
use super::syntax::sql_error;
use super::{HeaderField, Kind};
use crate::error::Result;
use crate::names;

/// What a PRAGMA becomes: its kind, and other text to run where that differs.
pub(super) struct Ruling {
    pub kind: Kind,
    pub sql: Option<String>,
}

/// How a PRAGMA is treated.
#[derive(Clone, Copy)]
enum Rule {
    /// Reads without an argument; setting it is refused.
    Read,
    /// Reads about the table or index that is named, if one is.
    About,
    /// Checks the database; the argument is a number or a table.
    Check,
    /// Text that gives the answer; setting it is refused.
    Answer(&'static str),
    /// The value in force, which may also be set to that same value.
    Fixed(&'static str, &'static Refusal),
    /// Accepted and ignored; reads as this value.
    Hint(&'static str),
    /// Does nothing, with or without an argument.
    Nothing,
    /// Stored in the file's header and replicated.
    Header(HeaderField),
    /// Of the session.
    ForeignKeys,
    /// Asks for orphans.
    ForeignKeyCheck,
    /// Refused.
    Refused(&'static Refusal),
}

const SETTING: &Refusal = &refusals::PRAGMA_SETTING;
const SEMANTICS: &Refusal = &refusals::PRAGMA_SEMANTICS;

/// Internal objects are not in the list.
const TABLE_LIST: &str = "SELECT schema, name, type, ncol, wr, strict FROM pragma_table_list \
    WHERE lower(substr(name, 1, 10)) <> '_tidegate_' \
    AND lower(substr(name, 1, 9)) <> 'turso_cdc' AND lower(substr(name, 1, 8)) <> '__turso_'";
/// The real answer tells the path of the file on the server.
const DATABASE_LIST: &str = "SELECT 0 AS seq, 'main' AS name, '' AS file";
const COLLATION_LIST: &str = "SELECT 0 AS seq, 'RTRIM' AS name UNION ALL SELECT 1, 'NOCASE' \
    UNION ALL SELECT 2, 'BINARY'";
const COMPILE_OPTIONS: &str = "SELECT '' AS compile_options WHERE 0";

/// Every PRAGMA with a rule, by group, for lookup and documentation.
const RULES: &[(&str, Rule)] = &[
    ("application_id", Rule::Header(HeaderField::ApplicationId)),
    ("user_version", Rule::Header(HeaderField::UserVersion)),
    ("foreign_keys", Rule::ForeignKeys),
    ("table_info", Rule::About),
    ("table_xinfo", Rule::About),
    ("index_list", Rule::About),
    ("index_info", Rule::About),
    ("index_xinfo", Rule::About),
    ("foreign_key_list", Rule::About),
    ("table_list", Rule::Answer(TABLE_LIST)),
    ("database_list", Rule::Answer(DATABASE_LIST)),
    ("collation_list", Rule::Answer(COLLATION_LIST)),
    ("compile_options", Rule::Answer(COMPILE_OPTIONS)),
    ("function_list", Rule::Read),
    ("schema_version", Rule::Read),
    ("page_count", Rule::Read),
    ("page_size", Rule::Read),
    ("freelist_count", Rule::Read),
    ("integrity_check", Rule::Check),
    ("quick_check", Rule::Check),
    ("encoding", Rule::Fixed("UTF-8", SETTING)),
    ("journal_mode", Rule::Fixed("wal", SETTING)),
    ("synchronous", Rule::Fixed("2", SETTING)),
    ("auto_vacuum", Rule::Fixed("0", SETTING)),
    ("secure_delete", Rule::Fixed("0", SETTING)),
    ("locking_mode", Rule::Fixed("normal", SETTING)),
    ("query_only", Rule::Fixed("0", SETTING)),
    ("wal_autocheckpoint", Rule::Fixed("0", SETTING)),
    ("automatic_index", Rule::Fixed("1", SETTING)),
    ("trusted_schema", Rule::Fixed("1", SETTING)),
    ("read_uncommitted", Rule::Fixed("0", SEMANTICS)),
    ("reverse_unordered_selects", Rule::Fixed("0", SEMANTICS)),
    ("legacy_alter_table", Rule::Fixed("0", SEMANTICS)),
    ("defer_foreign_keys", Rule::Fixed("0", SEMANTICS)),
    ("recursive_triggers", Rule::Fixed("0", SEMANTICS)),
    ("case_sensitive_like", Rule::Fixed("0", SEMANTICS)),
    ("ignore_check_constraints", Rule::Fixed("0", SEMANTICS)),
    ("writable_schema", Rule::Fixed("0", SEMANTICS)),
    ("count_changes", Rule::Fixed("0", SEMANTICS)),
    ("full_column_names", Rule::Fixed("0", SEMANTICS)),
    ("short_column_names", Rule::Fixed("1", SEMANTICS)),
    ("empty_result_callbacks", Rule::Fixed("0", SEMANTICS)),
    ("busy_timeout", Rule::Hint("0")),
    ("cache_size", Rule::Hint("-2000")),
    ("cache_spill", Rule::Hint("1")),
    ("temp_store", Rule::Hint("0")),
    ("mmap_size", Rule::Hint("0")),
    ("threads", Rule::Hint("0")),
    ("analysis_limit", Rule::Hint("0")),
    ("optimize", Rule::Nothing),
    ("shrink_memory", Rule::Nothing),
    ("legacy_file_format", Rule::Nothing),
    ("foreign_key_check", Rule::ForeignKeyCheck),
    ("module_list", Rule::Read),
    ("wal_checkpoint", Rule::Refused(SETTING)),
    ("max_page_count", Rule::Refused(SETTING)),
    ("incremental_vacuum", Rule::Refused(SETTING)),
    ("journal_size_limit", Rule::Refused(SETTING)),
    ("data_sync_retry", Rule::Refused(SETTING)),
    ("capture_data_changes_conn", Rule::Refused(SETTING)),
    ("unstable_capture_data_changes_conn", Rule::Refused(SETTING)),
    ("key", Rule::Refused(SETTING)),
    ("rekey", Rule::Refused(SETTING)),
    ("hexkey", Rule::Refused(SETTING)),
    ("cipher", Rule::Refused(SETTING)),
    ("require_where", Rule::Refused(SEMANTICS)),
    ("i_am_a_dummy", Rule::Refused(SEMANTICS)),
    ("vdbe_trace", Rule::Refused(SETTING)),
    ("mvcc_checkpoint_threshold", Rule::Refused(SETTING)),
    ("mvcc_gc_threshold", Rule::Refused(SETTING)),
    ("mvcc_group_commit", Rule::Refused(SETTING)),
    ("fts_merge_threshold", Rule::Refused(SETTING)),
    ("list_types", Rule::Refused(&refusals::CUSTOM_TYPE)),
];

/// Rules on a PRAGMA statement.
pub(super) fn rule(
    name: &QualifiedName,
    body: Option<&PragmaBody>,
    facts: &SchemaFacts,
) -> Result<Ruling> {
    super::objects::check_schema(name)?;
    let pragma = name.name.as_str().to_ascii_lowercase();
    let Some((_, rule)) = RULES.iter().find(|(known, _)| *known == pragma) else {
        return Err(refusals::PRAGMA_UNKNOWN.refuse(&pragma));
    };
    let value = body.map(|body| match body {
        PragmaBody::Equals(value) | PragmaBody::Call(value) => value.as_ref(),
    });
    match (rule, value) {
        (Rule::Read | Rule::About | Rule::Check, None) => Ok(read(None)),
        (Rule::Read, Some(_)) => Err(SETTING.refuse(&pragma)),
        (Rule::About, Some(value)) => check_about(value).map(|()| read(None)),
        (Rule::Check, Some(value)) => check_about(value).map(|()| read(None)),
        (Rule::Answer(sql), None) => Ok(read(Some((*sql).to_owned()))),
        (Rule::Answer(sql), Some(value)) => about_one(&pragma, sql, value),
        (Rule::Fixed(fixed, _), None) | (Rule::Hint(fixed), None) => {
            Ok(read(Some(constant(&pragma, fixed))))
        }
        (Rule::Fixed(fixed, refusal), Some(value)) => set_fixed(&pragma, fixed, refusal, value),
        (Rule::Hint(_) | Rule::Nothing, _) => Ok(nothing()),
        (Rule::Header(_), None) => Ok(read(None)),
        (Rule::Header(field), Some(value)) => set_header(&pragma, *field, value),
        (Rule::ForeignKeys, value) => Ok(Ruling {
            kind: Kind::ForeignKeys(value.map(is_on)),
            sql: None,
        }),
        (Rule::ForeignKeyCheck, value) => {
            let table = value.and_then(word);
            let query = foreign_keys::check_query(facts, table.as_deref())?;
            Ok(read(Some(query)))
        }
        (Rule::Refused(refusal), _) => Err(refusal.refuse(&pragma)),
    }
}

/// The names that read, that are accepted and ignored, and that hold one value: for the
/// documentation.
pub(super) fn documented() -> [(&'static str, Vec<String>); 4] {
    let named = |wanted: fn(&Rule) -> Option<String>| {
        let each = |(name, rule): &(&str, Rule)| wanted(rule).map(|text| format!("{name}{text}"));
        RULES.iter().filter_map(each).collect::<Vec<_>>()
    };
    [
        (
            "Read",
            named(|rule| match rule {
                Rule::Read
                | Rule::About
                | Rule::Check
                | Rule::ForeignKeyCheck
                | Rule::Answer(_) => Some(String::new()),
                _ => None,
            }),
        ),
        (
            "Read and set",
            named(|rule| match rule {
                Rule::Header(_) | Rule::ForeignKeys => Some(String::new()),
                _ => None,
            }),
        ),
        (
            "Have one value, which may be set again",
            named(|rule| match rule {
                Rule::Fixed(value, _) => Some(format!(" = {value}")),
                _ => None,
            }),
        ),
        (
            "Accepted and ignored",
            named(|rule| match rule {
                Rule::Hint(_) | Rule::Nothing => Some(String::new()),
                _ => None,
            }),
        ),
    ]
}

fn read(sql: Option<String>) -> Ruling {
    Ruling {
        kind: Kind::Read,
        sql,
    }
}

fn nothing() -> Ruling {
    Ruling {
        kind: Kind::Empty,
        sql: Some(String::new()),
    }
}

fn constant(pragma: &str, value: &str) -> String {
    let literal = match value.parse::<i64>() {
        Ok(number) => number.to_string(),
        Err(_) => names::literal(value),
    };
    format!("SELECT {literal} AS {}", names::quote(pragma))
}

/// `PRAGMA table_list(t)` and the like: one row of the answer.
fn about_one(pragma: &str, sql: &str, value: &Expr) -> Result<Ruling> {
    if pragma != "table_list" {
        return Err(SETTING.refuse(pragma));
    }
    check_about(value)?;
    let name = names::literal(&word(value).unwrap_or_default());
    Ok(read(Some(format!(
        "{sql} AND name = {name} COLLATE NOCASE"
    ))))
}

fn check_about(value: &Expr) -> Result<()> {
    match word(value) {
        Some(name) => super::objects::check_name(&name),
        None => Ok(()),
    }
}

/// Setting what is in force anyway is accepted, and answers as a read does where SQLite's
/// does.
fn set_fixed(pragma: &str, fixed: &str, refusal: &Refusal, value: &Expr) -> Result<Ruling> {
    let wanted = word(value).unwrap_or_default().to_ascii_lowercase();
    let wanted = match wanted.as_str() {
        "on" | "yes" | "true" => "1",
        "off" | "no" | "false" => "0",
        "full" if pragma == "synchronous" => "2",
        "utf8" => "utf-8",
        other => other,
    };
    if !wanted.eq_ignore_ascii_case(fixed) {
        return Err(refusal.refuse(pragma));
    }
    if matches!(pragma, "journal_mode" | "locking_mode") {
        return Ok(read(Some(constant(pragma, fixed))));
    }
    Ok(nothing())
}

fn set_header(pragma: &str, field: HeaderField, value: &Expr) -> Result<Ruling> {
    let number = word(value).and_then(|text| text.parse::<i32>().ok());
    let Some(value) = number else {
        return Err(sql_error(format!("{pragma} takes an integer of 32 bits")));
    };
    Ok(Ruling {
        kind: Kind::HeaderPragma { field, value },
        sql: Some(format!("PRAGMA {pragma} = {value}")),
    })
}

/// As SQLite reads a Boolean: words, or any number but zero.
fn is_on(value: &Expr) -> bool {
    let text = word(value).unwrap_or_default().to_ascii_lowercase();
    match text.as_str() {
        "on" | "yes" | "true" => true,
        other => other.parse::<f64>().is_ok_and(|number| number != 0.0),
    }
}

/// The value as text: a name, a string, a keyword, a number with its sign.
fn word(value: &Expr) -> Option<String> {
    match value {
        Expr::Name(name) | Expr::Id(name) => Some(name.as_str().to_owned()),
        Expr::Literal(Literal::Keyword(text) | Literal::Numeric(text)) => Some(text.clone()),
        Expr::Literal(Literal::String(text)) => Some(text.trim_matches('\'').to_owned()),
        Expr::Literal(Literal::True) => Some("1".to_owned()),
        Expr::Literal(Literal::False) => Some("0".to_owned()),
        Expr::Unary(UnaryOperator::Negative, inner) => Some(format!("-{}", word(inner)?)),
        Expr::Unary(UnaryOperator::Positive, inner) => word(inner),
        _ => None,
    }
}
