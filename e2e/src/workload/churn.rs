//! Rows with unique names that come, change their name or their key, swap, and go.
//!
//! Each worker owns its rows. It knows what they should be and changes them in every way that
//! makes log and apply sweat: keys reused, unique values handed from row to row within one
//! transaction, REPLACE that evicts.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::Value;

use crate::client::{Outcome, integer, text};
use crate::fleet::Worker;
use crate::history::{Fate, History};
use crate::stream::Statement;

/// Rows that a worker keeps.
const ROWS_MAX: usize = 24;

/// One change: these rows go, then these come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Whose rows.
    pub owner: i64,
    /// Rows (id, name) that were there before.
    pub before: Vec<(i64, String)>,
    /// Rows that are there in their place.
    pub after: Vec<(i64, String)>,
}

/// What a worker believes of its rows.
#[derive(Default)]
pub struct Owned {
    rows: BTreeMap<i64, String>,
}

/// Tables.
pub fn setup() -> Vec<String> {
    vec![
        "CREATE TABLE churn (id INTEGER PRIMARY KEY, owner INTEGER NOT NULL, \
         name TEXT NOT NULL UNIQUE, changes INTEGER NOT NULL DEFAULT 0)"
            .to_owned(),
        "CREATE INDEX churn_by_owner ON churn (owner, name)".to_owned(),
    ]
}

impl Owned {
    /// One change.
    pub async fn step(&mut self, worker: &mut Worker, history: &History<Change>) {
        let started = Instant::now();
        let (change, outcome) = match worker.rng.below(10) {
            _ if self.rows.len() < 4 => self.insert(worker).await,
            0..3 if self.rows.len() < ROWS_MAX => self.insert(worker).await,
            0..5 => self.delete(worker).await,
            5 | 6 => self.rename(worker).await,
            7 => self.rekey(worker).await,
            8 => self.swap(worker).await,
            _ => self.replace(worker).await,
        };
        let fate = Fate::from(&outcome);
        self.learn(&change, fate);
        history.note(change, fate, started);
    }

    /// After an unknown fate the rows are left alone, whichever they are.
    fn learn(&mut self, change: &Change, fate: Fate) {
        if fate == Fate::Failed {
            return;
        }
        for (id, _) in &change.before {
            self.rows.remove(id);
        }
        if fate == Fate::Acknowledged {
            self.rows.extend(change.after.iter().cloned());
        }
    }

    async fn insert(&self, worker: &mut Worker) -> (Change, Outcome) {
        let row = fresh_row(worker);
        let outcome = worker
            .write(
                "INSERT INTO churn (id, owner, name) VALUES (?, ?, ?)",
                &arguments(worker, &row),
            )
            .await;
        (change(worker, vec![], vec![row]), outcome)
    }

    async fn delete(&self, worker: &mut Worker) -> (Change, Outcome) {
        let row = self.pick(worker);
        let outcome = worker
            .write("DELETE FROM churn WHERE name = ?", &[text(&row.1)])
            .await;
        (change(worker, vec![row], vec![]), outcome)
    }

    async fn rename(&self, worker: &mut Worker) -> (Change, Outcome) {
        let row = self.pick(worker);
        let name = fresh_name(worker);
        let sql = "UPDATE churn SET name = ?, changes = changes + 1 WHERE id = ?";
        let outcome = worker.write(sql, &[text(&name), integer(row.0)]).await;
        let after = (row.0, name);
        (change(worker, vec![row], vec![after]), outcome)
    }

    async fn rekey(&self, worker: &mut Worker) -> (Change, Outcome) {
        let row = self.pick(worker);
        let id = worker.fresh_id();
        let sql = "UPDATE churn SET id = ?, changes = changes + 1 WHERE id = ?";
        let outcome = worker.write(sql, &[integer(id), integer(row.0)]).await;
        let after = (id, row.1.clone());
        (change(worker, vec![row], vec![after]), outcome)
    }

    /// Two rows swap their names, by way of a third name.
    async fn swap(&self, worker: &mut Worker) -> (Change, Outcome) {
        let a = self.pick(worker);
        let b = self.other_than(a.0);
        let set = |id: i64, name: &str| -> Statement {
            let sql = "UPDATE churn SET name = ?, changes = changes + 1 WHERE id = ?";
            (sql.to_owned(), vec![text(name), integer(id)])
        };
        let between = fresh_name(worker);
        let statements = [set(a.0, &between), set(b.0, &a.1), set(a.0, &b.1)];
        let outcome = if worker.rng.percent(50) {
            worker.transaction(&statements).await
        } else {
            worker.interactive(&statements, false).await
        };
        let after = vec![(a.0, b.1.clone()), (b.0, a.1.clone())];
        (change(worker, vec![a, b], after), outcome)
    }

    /// A row with the key of one and the name of another evicts both.
    async fn replace(&self, worker: &mut Worker) -> (Change, Outcome) {
        let a = self.pick(worker);
        let b = self.other_than(a.0);
        let row = (a.0, b.1.clone());
        let outcome = worker
            .write(
                "INSERT OR REPLACE INTO churn (id, owner, name) VALUES (?, ?, ?)",
                &arguments(worker, &row),
            )
            .await;
        (change(worker, vec![a, b], vec![row]), outcome)
    }

    fn pick(&self, worker: &mut Worker) -> (i64, String) {
        let ids: Vec<_> = self.rows.keys().copied().collect();
        let id = *worker.rng.choose(&ids).expect("a worker keeps some rows");
        (id, self.rows[&id].clone())
    }

    fn other_than(&self, id: i64) -> (i64, String) {
        let (id, name) = self
            .rows
            .iter()
            .find(|(other, _)| **other != id)
            .expect("a worker keeps several rows");
        (*id, name.clone())
    }
}

fn change(worker: &Worker, before: Vec<(i64, String)>, after: Vec<(i64, String)>) -> Change {
    Change {
        owner: worker.owner(),
        before,
        after,
    }
}

fn fresh_row(worker: &mut Worker) -> (i64, String) {
    (worker.fresh_id(), fresh_name(worker))
}

fn fresh_name(worker: &mut Worker) -> String {
    format!("name-{}", worker.fresh_id())
}

fn arguments(worker: &Worker, row: &(i64, String)) -> [Value; 3] {
    [integer(row.0), integer(worker.owner()), text(&row.1)]
}
