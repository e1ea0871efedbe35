//! Writes `docs/sql.md` from the suite's own files and the gate's tables.

use std::fmt::Write;

use tidegate_engine::statement_gate;

use crate::script::{Expect, Section};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/sql.md");

const HEAD: &str = "\
# Supported SQL

<!-- Written by the conformance suite: UPDATE_DOCS=1 bash e2e/test -E 'binary(conformance)' -->

Tidegate runs SQLite's SQL as its engine knows it. What a replica receives is not the statement but
the rows it left behind, so functions like `random()` and `datetime('now')` are safe, and triggers
and foreign-key actions run once, on the primary.

Every form in the first table is run at each change of Tidegate or of its engine, in autocommit and
inside an interactive transaction; the log is shipped to a second database, and rows with their row
ids and storage classes, schema, triggers, sequences and header values are compared. A form that
cannot be captured faithfully is refused before it runs, with the code `TIDEGATE_REFUSED` and the
reason; those are in the second table. What the engine of this release does not have is in the last.

Some things differ from SQLite where nothing is refused:

- A violated PRIMARY KEY has the code `SQLITE_CONSTRAINT_UNIQUE`.
- Some errors end the whole transaction, as the answer then says: integer overflow in `abs` and
  `sum`, malformed JSON given to `json()`, and others.
- OR FAIL and RAISE(FAIL) keep the rows before the one that failed, as in SQLite, but not where the
  statement fires triggers or the actions of foreign keys: then it is undone as a whole, because the
  engine logs a row after its triggers have run.
- `changes()` is too high after a statement that reads a window function.
- `BEGIN CONCURRENT` is `BEGIN IMMEDIATE`; `BEGIN READONLY` refuses writes.
- Foreign keys are enforced unless the session or the configuration switches them off.
";

/// Fails when the page is stale; writes it when asked.
pub fn check(must: &[Section], refused: &[Section], lacks: &[Section]) {
    let page = page(must, refused, lacks).expect("writing to a string does not fail");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, page).expect("docs/sql.md is written");
        return;
    }
    let present = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        present == page,
        "docs/sql.md is stale: UPDATE_DOCS=1 bash e2e/test -E 'binary(conformance)'"
    );
}

fn page(
    must: &[Section],
    refused: &[Section],
    lacks: &[Section],
) -> Result<String, std::fmt::Error> {
    let mut page = HEAD.to_owned();
    let count = |sections: &[Section]| -> usize {
        sections
            .iter()
            .map(|section| section.counted().count())
            .sum()
    };
    writeln!(
        page,
        "\n## Forms that arrive equal\n\n{} forms.\n",
        count(must)
    )?;
    page.push_str("| section | forms |\n|---|---|\n");
    for section in must {
        let names: Vec<String> = section
            .counted()
            .filter_map(|form| form.name.clone())
            .collect();
        writeln!(
            page,
            "| {} | {} |",
            section.title,
            escape(&names.join("; "))
        )?;
    }
    page.push_str("\n## Refused, and what runs\n\n");
    writeln!(page, "{} forms are tested to be refused:\n", count(refused))?;
    write_refused(&mut page, refused)?;
    writeln!(page, "\n{}", statement_gate::reference().trim_end())?;
    page.push_str("\n## What the engine lacks\n\nThese are errors.\n\n");
    for section in lacks {
        for form in section.counted() {
            let examples: Vec<String> = form
                .statements
                .iter()
                .filter(|statement| statement.expect != Expect::Success)
                .map(|statement| code(&statement.sql))
                .collect();
            let name = form.name.as_deref().unwrap_or_default();
            writeln!(page, "- {name}: {}", examples.join(", "))?;
        }
    }
    Ok(page)
}

fn write_refused(page: &mut String, refused: &[Section]) -> std::fmt::Result {
    page.push_str("| form | reason | for example |\n|---|---|---|\n");
    for form in refused.iter().flat_map(Section::counted) {
        let mut first = form.statements.iter().filter_map(|s| match &s.expect {
            Expect::Refused(reason) => Some((reason, &s.sql)),
            _ => None,
        });
        if let Some((reason, sql)) = first.next() {
            let name = escape(form.name.as_deref().unwrap_or_default());
            writeln!(page, "| {name} | `{reason}` | {} |", escape(&code(sql)))?;
        }
    }
    Ok(())
}

fn code(sql: &str) -> String {
    let line = sql.trim_end_matches(';').replace('\n', " ");
    let mut short: String = line.chars().take(90).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    format!("`{short}`")
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|")
}
