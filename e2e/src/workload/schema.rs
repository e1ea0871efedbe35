//! Side tables that live a whole life: made, altered in every way, filled, renamed, dropped.
//!
//! A life is a fixed list of statements. What the table looks like after each of them is a
//! pure function of the number of statements that were executed ([`Life::after`]), so that a
//! checker needs to know only how far a life has come.

use std::time::Instant;

use crate::fleet::Worker;
use crate::history::{Fate, History};

/// Number of statements in a life.
pub const STEPS: usize = STATEMENTS.len();

/// One statement of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Whose table.
    pub life: Life,
    /// Which statement, from 0.
    pub step: usize,
}

/// The life of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life(pub i64);

/// What a table looks like at one point of its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Its name.
    pub name: String,
    /// Its columns in order.
    pub columns: Vec<String>,
    /// Its indexes in order of their names.
    pub indexes: Vec<String>,
    /// Its rows, each quoted by SQL and joined by commas.
    pub rows: Vec<String>,
}

/// The table that a worker is busy with.
#[derive(Default)]
pub struct Owned {
    current: Option<Step>,
}

/// `{t}` is the table's first name, `{u}` the one it is renamed to.
const STATEMENTS: [&str; 13] = [
    "CREATE TABLE {t} (id INTEGER PRIMARY KEY, a TEXT, b INTEGER DEFAULT 7)",
    "INSERT INTO {t} (id, a, b) VALUES (1, 'one', 10), (2, NULL, 20), (3, 'three', 30)",
    "ALTER TABLE {t} ADD COLUMN c TEXT DEFAULT 'new'",
    "CREATE INDEX {t}_by_a ON {t} (a)",
    "UPDATE {t} SET c = 'set' WHERE id = 2",
    "ALTER TABLE {t} RENAME COLUMN b TO b2",
    "ALTER TABLE {t} RENAME TO {u}",
    "INSERT INTO {u} (id, a) VALUES (9, 'nine')",
    "DROP INDEX {t}_by_a",
    "ALTER TABLE {u} DROP COLUMN a",
    "DELETE FROM {u} WHERE id = 1",
    "CREATE TABLE {t} (id INTEGER PRIMARY KEY, other BLOB)",
    "DROP TABLE {t}",
];
/// Lives with these remainders stop here instead of at the end, so that tables in all states
/// are there at the end of a run.
const EARLY_ENDS: [usize; 4] = [5, 8, 12, STEPS];

impl Life {
    /// First name of its table.
    pub fn first_name(self) -> String {
        format!("side_{}", self.0)
    }

    /// Its table's name after the renaming.
    pub fn second_name(self) -> String {
        format!("side_{}_renamed", self.0)
    }

    /// The tables after the first `done` statements.
    pub fn after(self, done: usize) -> Vec<Shape> {
        let mut shapes = Vec::new();
        if done >= 1 {
            shapes.push(self.main_table(done));
        }
        if done == 12 {
            shapes.push(Shape {
                name: self.first_name(),
                columns: owned(&["id", "other"]),
                indexes: Vec::new(),
                rows: Vec::new(),
            });
        }
        shapes
    }

    fn main_table(self, done: usize) -> Shape {
        let columns: &[&str] = match done {
            0..=2 => &["id", "a", "b"],
            3..=5 => &["id", "a", "b", "c"],
            6..=9 => &["id", "a", "b2", "c"],
            _ => &["id", "b2", "c"],
        };
        let rows: &[&str] = match done {
            0 | 1 => &[],
            2 => &["1,'one',10", "2,NULL,20", "3,'three',30"],
            3 | 4 => &["1,'one',10,'new'", "2,NULL,20,'new'", "3,'three',30,'new'"],
            5..=7 => &["1,'one',10,'new'", "2,NULL,20,'set'", "3,'three',30,'new'"],
            8 | 9 => &[
                "1,'one',10,'new'",
                "2,NULL,20,'set'",
                "3,'three',30,'new'",
                "9,'nine',7,'new'",
            ],
            10 => &["1,10,'new'", "2,20,'set'", "3,30,'new'", "9,7,'new'"],
            _ => &["2,20,'set'", "3,30,'new'", "9,7,'new'"],
        };
        let indexed = (4..=8).contains(&done);
        Shape {
            name: if done >= 7 {
                self.second_name()
            } else {
                self.first_name()
            },
            columns: owned(columns),
            indexes: indexed
                .then(|| format!("{}_by_a", self.first_name()))
                .into_iter()
                .collect(),
            rows: owned(rows),
        }
    }

    fn statement(self, step: usize) -> String {
        STATEMENTS[step]
            .replace("{t}", &self.first_name())
            .replace("{u}", &self.second_name())
    }

    fn end(self) -> usize {
        EARLY_ENDS[usize::try_from(self.0.rem_euclid(4)).expect("a small number")]
    }
}

impl Owned {
    /// The next statement of the current life, or the first one of a new life.
    pub async fn step(&mut self, worker: &mut Worker, history: &History<Step>) {
        let step = self.current.take().unwrap_or_else(|| Step {
            life: Life(worker.fresh_id()),
            step: 0,
        });
        let started = Instant::now();
        let outcome = worker.write(&step.life.statement(step.step), &[]).await;
        let fate = Fate::from(&outcome);
        history.note(step, fate, started);
        self.current = match fate {
            Fate::Acknowledged if step.step + 1 < step.life.end() => Some(Step {
                step: step.step + 1,
                ..step
            }),
            Fate::Failed => Some(step),
            Fate::Acknowledged | Fate::Indeterminate => None,
        };
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The statements of a life, for tests of the shapes.
#[cfg(test)]
pub(crate) fn statements(life: Life) -> Vec<String> {
    (0..STEPS).map(|step| life.statement(step)).collect()
}
