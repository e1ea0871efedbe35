//! The conformance suite: every statement form that is let through arrives equal, every
//! other one is refused for its reason.
//!
//! `e2e/sql/must.sql` is run in three ways, each section on a pair of its own: statement by
//! statement, compared after each form; the same with each form inside an interactive
//! transaction; and shipped once, at the section's end. Then all sections one after the other
//! on a single pair, compared after each section and at the end by C SQLite too. The tables of
//! `docs/sql.md` are made from what passed; `UPDATE_DOCS=1` writes them.

mod bed;
mod docs;
mod script;

use anyhow::{Result, ensure};

use bed::Bed;
use script::{Expect, Form, Section};

/// Forms that `must.sql` has to hold at least.
const FORMS_MIN: usize = 300;

/// How a section is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Statement by statement; shipped and compared after each form.
    EachForm,
    /// Each form inside an interactive transaction; shipped and compared after each.
    Interactive,
    /// Statement by statement; shipped and compared once.
    Once,
}

#[test]
fn every_form_arrives_equal_statement_by_statement() {
    pass("must.sql", Way::EachForm);
}

#[test]
fn every_form_arrives_equal_from_interactive_transactions() {
    pass("must.sql", Way::Interactive);
}

#[test]
fn every_section_arrives_equal_in_one_batch() {
    pass("must.sql", Way::Once);
}

#[test]
fn all_sections_together_arrive_equal_and_c_sqlite_agrees() {
    let mut bed = Bed::new().expect("a pair");
    let mut faults = Vec::new();
    for section in read("must.sql") {
        for form in &section.forms {
            run_form(&mut bed, form, Way::Once, &section.title, &mut faults);
        }
        note(&mut faults, &section.title, "its end", bed.ship());
    }
    assert_eq!(bed.uncaptured_writes(), 0);
    let compared = bed.compare_with_sqlite().expect("C SQLite opens both");
    faults.extend(compared.named);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(compared.tables > 50 && compared.rows > 100_000);
}

#[test]
fn every_other_form_is_refused_for_its_reason_and_leaves_no_trace() {
    pass("refused.sql", Way::EachForm);
    let mut covered: Vec<String> = Vec::new();
    for section in read("refused.sql") {
        for statement in section.forms.iter().flat_map(|form| &form.statements) {
            if let Expect::Refused(reason) = &statement.expect {
                covered.push(reason.clone());
            }
        }
    }
    for refusal in tidegate_engine::statement_gate::refusals() {
        let reason = refusal.reason;
        // What a statement gets that the parser learns one day: no form can show it today.
        if reason == "statement" {
            continue;
        }
        assert!(
            covered.iter().any(|c| c == reason),
            "{reason} stands in no form"
        );
    }
}

#[test]
fn what_the_engine_lacks_is_an_error_and_leaves_no_trace() {
    pass("lacks.sql", Way::EachForm);
}

#[test]
fn the_documents_tables_are_fresh() {
    docs::check(&read("must.sql"), &read("refused.sql"), &read("lacks.sql"));
}

#[test]
fn there_are_enough_forms_and_their_names_differ() {
    let sections = read("must.sql");
    let mut names: Vec<String> = Vec::new();
    for section in &sections {
        names.extend(section.counted().map(|form| {
            format!(
                "{}: {}",
                section.title,
                form.name.as_deref().unwrap_or_default()
            )
        }));
    }
    assert!(names.len() >= FORMS_MIN, "{} forms", names.len());
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "two forms have one name");
}

/// Runs every section of a file on a pair of its own; panics with all faults.
fn pass(file: &str, way: Way) {
    let sections = read(file);
    let mut faults = Vec::new();
    let mut forms = 0;
    for section in &sections {
        if section.large && way != Way::EachForm {
            continue;
        }
        forms += section.counted().count();
        if let Err(error) = run_section(section, way, &mut faults) {
            faults.push(format!("[{}] {error:#}", section.title));
        }
    }
    println!(
        "{file}, {way:?}: {forms} forms in {} sections",
        sections.len()
    );
    assert!(
        faults.is_empty(),
        "{} faults\n{}",
        faults.len(),
        faults.join("\n")
    );
}

fn run_section(section: &Section, way: Way, faults: &mut Vec<String>) -> Result<()> {
    let mut bed = Bed::new()?;
    for form in &section.forms {
        run_form(&mut bed, form, way, &section.title, faults);
        if way != Way::Once {
            note(faults, &section.title, form_name(form), bed.ship());
        }
    }
    note(faults, &section.title, "its end", bed.ship());
    ensure!(bed.uncaptured_writes() == 0, "writes were not captured");
    Ok(())
}

fn run_form(bed: &mut Bed, form: &Form, way: Way, section: &str, faults: &mut Vec<String>) {
    let wrapped = way == Way::Interactive && !form.autocommit_only && !form.controls_transactions();
    let mut wrong = Vec::new();
    if wrapped && let Err(error) = bed.run("BEGIN IMMEDIATE") {
        wrong.push(format!("BEGIN IMMEDIATE: {error}"));
    }
    wrong.extend(
        form.statements
            .iter()
            .filter_map(|statement| bed.check(statement)),
    );
    if wrapped && let Err(error) = bed.run("COMMIT") {
        wrong.push(format!("COMMIT: {error}"));
    }
    if bed.is_in_transaction() {
        wrong.push("a transaction is left open".to_owned());
        bed.run("ROLLBACK").ok();
    }
    note(faults, section, form_name(form), wrong);
}

fn note(faults: &mut Vec<String>, section: &str, at: &str, found: Vec<String>) {
    faults.extend(
        found
            .into_iter()
            .map(|fault| format!("[{section} / {at}] {fault}")),
    );
}

fn form_name(form: &Form) -> &str {
    form.name.as_deref().unwrap_or("setup")
}

fn read(file: &str) -> Vec<Section> {
    let path = format!("{}/sql/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the suite's file");
    script::parse(&text).unwrap_or_else(|error| panic!("{file}: {error:#}"))
}
