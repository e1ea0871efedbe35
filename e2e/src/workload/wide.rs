//! Transactions that touch more than a thousand rows.
//!
//! Rows belong to groups; a second table says how many rows a group has and what each of them
//! holds. In every committed state both tables tell the same story, so half an applied
//! transaction shows at once.

use std::time::Instant;

use crate::client::{Outcome, integer};
use crate::fleet::Worker;
use crate::history::{Fate, History};
use crate::stream::Statement;

/// Fewest rows in a group; more than fit in one part of a batch.
const ROWS_MIN: i64 = 1_000;
/// How many more a group can have.
const ROWS_SPREAD: i64 = 1_000;
/// Groups that a worker keeps.
const GROUPS_MAX: usize = 2;
/// Rows of one group have ids from `group * SPACING`.
const SPACING: i64 = 4_096;

/// One change to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Which group.
    pub group: i64,
    /// Its rows and their value before, `None` if it was not there.
    pub before: Option<(i64, i64)>,
    /// The same after the change.
    pub after: Option<(i64, i64)>,
}

/// Groups that a worker has: number, rows, value.
#[derive(Default)]
pub struct Owned {
    groups: Vec<(i64, i64, i64)>,
}

/// Tables.
pub fn setup() -> Vec<String> {
    vec![
        "CREATE TABLE wide_rows (id INTEGER PRIMARY KEY, grp INTEGER NOT NULL, \
         value INTEGER NOT NULL, note TEXT)"
            .to_owned(),
        "CREATE INDEX wide_by_group ON wide_rows (grp)".to_owned(),
        "CREATE TABLE wide_groups (grp INTEGER PRIMARY KEY, members INTEGER NOT NULL, \
         value INTEGER NOT NULL)"
            .to_owned(),
    ]
}

impl Owned {
    /// A group comes, changes, or goes.
    pub async fn step(&mut self, worker: &mut Worker, history: &History<Change>) {
        let started = Instant::now();
        let grows = self.groups.len() < GROUPS_MAX && worker.rng.percent(40);
        let (change, outcome) = if grows || self.groups.is_empty() {
            self.insert(worker).await
        } else if worker.rng.percent(60) {
            self.update(worker).await
        } else {
            self.delete(worker).await
        };
        let fate = Fate::from(&outcome);
        if fate != Fate::Failed {
            self.groups.retain(|(group, ..)| *group != change.group);
        }
        if let (Fate::Acknowledged, Some((rows, value))) = (fate, change.after) {
            self.groups.push((change.group, rows, value));
        }
        history.note(change, fate, started);
    }

    async fn insert(&self, worker: &mut Worker) -> (Change, Outcome) {
        let group = worker.fresh_id();
        let rows = ROWS_MIN + worker.rng.integer_below(ROWS_SPREAD);
        let first = group * SPACING;
        let statements: [Statement; 2] = [
            (
                format!(
                    "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n \
                     WHERE i < {} - 1) INSERT INTO wide_rows (id, grp, value, note) \
                     SELECT {first} + i, {group}, 0, 'row ' || i FROM n",
                    rows
                ),
                vec![],
            ),
            (
                "INSERT INTO wide_groups (grp, members, value) VALUES (?, ?, 0)".to_owned(),
                vec![integer(group), integer(rows)],
            ),
        ];
        let outcome = worker.transaction(&statements).await;
        (change(group, None, Some((rows, 0))), outcome)
    }

    async fn update(&self, worker: &mut Worker) -> (Change, Outcome) {
        let (group, rows, value) = *worker.rng.choose(&self.groups).expect("there is a group");
        let statements = both(
            group,
            "UPDATE wide_rows SET value = value + 1 WHERE grp = ?",
            "UPDATE wide_groups SET value = value + 1 WHERE grp = ?",
        );
        let outcome = worker.transaction(&statements).await;
        let before = Some((rows, value));
        (change(group, before, Some((rows, value + 1))), outcome)
    }

    async fn delete(&self, worker: &mut Worker) -> (Change, Outcome) {
        let (group, rows, value) = *worker.rng.choose(&self.groups).expect("there is a group");
        let statements = both(
            group,
            "DELETE FROM wide_rows WHERE grp = ?",
            "DELETE FROM wide_groups WHERE grp = ?",
        );
        let outcome = worker.interactive(&statements, false).await;
        (change(group, Some((rows, value)), None), outcome)
    }
}

fn change(group: i64, before: Option<(i64, i64)>, after: Option<(i64, i64)>) -> Change {
    Change {
        group,
        before,
        after,
    }
}

fn both(group: i64, rows: &str, groups: &str) -> [Statement; 2] {
    [
        (rows.to_owned(), vec![integer(group)]),
        (groups.to_owned(), vec![integer(group)]),
    ]
}
