//! The part of `docs/sql.md` that is made from the gate's own tables.

use std::fmt::Write;

use super::walk::SELECT_DEPTH;
use super::weights::{DEPTH_MAX, TABLE_READS_MAX};
use super::{Limits, functions, pragmas, refusals};

const CATALOGUE: &str = "\
### The catalogue

`sqlite_schema`, `sqlite_sequence` and `PRAGMA table_list` show the client's objects only. Names that
begin with `_tidegate_`, `turso_cdc` or `__turso_` are internal; they can be neither read nor made.
`PRAGMA database_list` does not tell the path of the file. `PRAGMA foreign_key_check` finds orphans,
although the engine itself does not look for them. A PRAGMA that nobody knows is an error, where
SQLite answers with nothing.
";

/// Markdown: what is refused and why, PRAGMAs, functions, limits.
pub fn reference() -> String {
    let mut text = String::new();
    write_all(&mut text).expect("writing to a string does not fail");
    text
}

fn write_all(out: &mut String) -> std::fmt::Result {
    out.write_str("### Refused statements\n\n")?;
    out.write_str("| reason | what | why | instead |\n|---|---|---|---|\n")?;
    for refusal in refusals::all() {
        writeln!(
            out,
            "| `{}` | {} | {} | {} |",
            refusal.reason, refusal.what, refusal.why, refusal.instead
        )?;
    }
    out.write_str("\n### PRAGMAs\n")?;
    for (title, names) in pragmas::documented() {
        write_list(out, title, names.iter().map(String::as_str))?;
    }
    out.write_str("\n### Functions\n")?;
    for (title, names) in functions::ALLOWED {
        write_list(out, title, names.split_ascii_whitespace())?;
    }
    let session = ["last_insert_rowid", "changes", "total_changes"];
    write_list(out, "Answered by the session", session.into_iter())?;
    let tables = functions::TABLE_FUNCTIONS.split_ascii_whitespace();
    write_list(out, "In FROM", tables)?;
    writeln!(out, "\n{CATALOGUE}")?;
    write_limits(out, &Limits::default())
}

/// They are checked before anything is parsed or planned.
fn write_limits(out: &mut String, limits: &Limits) -> std::fmt::Result {
    out.write_str("### Limits of a statement\n\n| limit | value |\n|---|---|\n")?;
    let rows = [
        (
            "bytes of a statement; values belong into parameters",
            limits.sql_bytes_max,
        ),
        ("bytes of a script", limits.script_bytes_max),
        ("statements in a script", limits.script_statements_max),
        (
            "parameters, and the highest number of one",
            limits.params_max,
        ),
        (
            "parentheses and subqueries in each other",
            limits.nesting_max,
        ),
        (
            "terms of UNION, EXCEPT and INTERSECT",
            limits.compound_terms_max,
        ),
        ("SELECTs", limits.selects_max),
        ("tables in WITH", limits.with_tables_max),
        ("ON CONFLICT clauses", limits.upsert_clauses_max),
        (
            "subqueries in each other, with views and WITH tables written out",
            DEPTH_MAX / SELECT_DEPTH,
        ),
    ];
    for (limit, value) in rows {
        writeln!(out, "| {limit} | {value} |")?;
    }
    let reads = "table reads, with views and WITH tables written out";
    writeln!(out, "| {reads} | {TABLE_READS_MAX} |")
}

fn write_list<'n>(
    out: &mut String,
    title: &str,
    names: impl Iterator<Item = &'n str>,
) -> std::fmt::Result {
    let quoted: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    writeln!(out, "\n**{title}**: {}.", quoted.join(", "))
}
