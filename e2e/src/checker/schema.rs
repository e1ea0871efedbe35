//! Lives of tables: each is where its acknowledged statements brought it, or one further if
//! the last one's fate is unknown.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::{Report, Stored};
use crate::history::{Fate, Record};
use crate::workload::schema::{Life, Shape, Step};

/// How far a life has come: statements certainly done, statements perhaps done.
type Progress = (usize, usize);

pub(super) fn judge(records: &[Record<Step>], stored: &Stored) -> Result<Report> {
    let mut report = Report::new("schema", records);
    let mut names = side_tables(stored)?;
    for (life, (certain, possible)) in progress(records) {
        let found = shapes(life, &names, stored)?;
        for shape in &found {
            names.remove(&shape.name);
        }
        let matches = |done: &usize| same(&life.after(*done), &found);
        match (certain..=possible).rev().find(matches) {
            Some(done) => report.present += done as u64,
            None => report.problem(format!(
                "{life:?} after {certain} to {possible} statements is {found:?}, not {:?}",
                life.after(certain)
            )),
        }
    }
    for name in names {
        report.problem(format!("table {name} should not be there"));
    }
    Ok(report)
}

fn progress(records: &[Record<Step>]) -> BTreeMap<Life, Progress> {
    let mut lives = BTreeMap::new();
    for record in records {
        let (certain, possible): &mut Progress = lives.entry(record.op.life).or_default();
        match record.fate {
            Fate::Acknowledged => {
                *certain = record.op.step + 1;
                *possible = *certain;
            }
            Fate::Indeterminate => *possible = record.op.step + 1,
            Fate::Failed => {}
        }
    }
    lives
}

fn same(expected: &[Shape], found: &[Shape]) -> bool {
    let sorted = |shapes: &[Shape]| {
        let mut shapes = shapes.to_vec();
        shapes.sort_by(|a, b| a.name.cmp(&b.name));
        shapes
    };
    sorted(expected) == sorted(found)
}

fn side_tables(stored: &Stored) -> Result<BTreeSet<String>> {
    let sql =
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'side\\_%' ESCAPE '\\'";
    Ok(stored.rows(sql, |row| row.get(0))?.into_iter().collect())
}

fn shapes(life: Life, names: &BTreeSet<String>, stored: &Stored) -> Result<Vec<Shape>> {
    let mut shapes = Vec::new();
    for name in [life.first_name(), life.second_name()] {
        if names.contains(&name) {
            shapes.push(shape(&name, stored)?);
        }
    }
    Ok(shapes)
}

fn shape(name: &str, stored: &Stored) -> Result<Shape> {
    let columns: Vec<String> = stored.rows(
        &format!("SELECT name FROM pragma_table_info('{name}') ORDER BY cid"),
        |row| row.get(0),
    )?;
    let quoted: Vec<_> = columns.iter().map(|c| format!("quote(\"{c}\")")).collect();
    let rows: Vec<String> = stored.rows(
        &format!(
            "SELECT {} FROM {name} ORDER BY id",
            quoted.join(" || ',' || ")
        ),
        |row| row.get(0),
    )?;
    let sql = format!(
        "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL \
         AND tbl_name = '{name}' ORDER BY name"
    );
    Ok(Shape {
        name: name.to_owned(),
        columns,
        indexes: stored.rows(&sql, |row| row.get(0))?,
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::record;
    use super::*;
    use crate::workload::schema::{STEPS, statements};

    const LIFE: Life = Life(42);

    fn database(done: usize) -> Stored {
        Stored::of_statements(&statements(LIFE)[..done]).unwrap()
    }

    fn history(done: usize, next: Option<Fate>) -> Vec<Record<Step>> {
        let step = |step| Step { life: LIFE, step };
        let mut records: Vec<_> = (0..done)
            .map(|i| record(step(i), Fate::Acknowledged, i as u64))
            .collect();
        records.extend(next.map(|fate| record(step(done), fate, done as u64)));
        records
    }

    #[test]
    fn every_step_of_a_life_is_recognised() {
        for done in 0..=STEPS {
            let report = judge(&history(done, None), &database(done)).unwrap();
            assert_eq!(report.problems, Vec::<String>::new(), "after {done}");
        }
    }

    #[test]
    fn a_lost_statement_is_a_problem_and_an_unknown_one_is_not() {
        for done in 0..STEPS {
            let lost = judge(&history(done + 1, None), &database(done)).unwrap();
            assert_eq!(lost.wrong, 1, "after {done}");
            let failed = history(done, Some(Fate::Failed));
            assert!(
                judge(&failed, &database(done + 1)).unwrap().wrong > 0,
                "after {done}"
            );
            let unknown = history(done, Some(Fate::Indeterminate));
            assert_eq!(judge(&unknown, &database(done)).unwrap().wrong, 0);
            assert_eq!(judge(&unknown, &database(done + 1)).unwrap().wrong, 0);
        }
    }
}
