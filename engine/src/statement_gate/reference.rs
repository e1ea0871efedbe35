//! The part of `docs/sql.md` that is made from the gate's own tables.

use std::fmt::Write;

use super::{functions, pragmas, refusals};

/// Markdown: what is refused and why, PRAGMAs, functions.
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
    write_list(out, "In FROM", tables)
}

fn write_list<'n>(
    out: &mut String,
    title: &str,
    names: impl Iterator<Item = &'n str>,
) -> std::fmt::Result {
    let quoted: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    writeln!(out, "\n**{title}**: {}.", quoted.join(", "))
}
