//! Large values, from nothing to 1 MB.
//!
//! A value is a function of its id, so that a checker can make it again.

use std::time::Instant;

use crate::client::{blob, integer};
use crate::fleet::Worker;
use crate::history::{Fate, History};
use crate::rng::Rng;

/// Largest value.
const BYTES_MAX: u64 = 1_000_000;
/// Values that a worker keeps; older ones are deleted, so that a long run fits on a disk.
const KEPT_MAX: usize = 6;

/// One change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// This value comes.
    Insert(i64),
    /// This value goes.
    Delete(i64),
}

/// Values that a worker has stored.
#[derive(Default)]
pub struct Owned {
    ids: Vec<i64>,
}

/// Tables.
pub fn setup() -> Vec<String> {
    vec![
        "CREATE TABLE blobs (id INTEGER PRIMARY KEY, size INTEGER NOT NULL, body BLOB NOT NULL)"
            .to_owned(),
    ]
}

/// The value of this id. Most are small, some are empty, one in twenty is large.
pub fn body(id: i64) -> Vec<u8> {
    let mut rng = Rng::new(id.unsigned_abs());
    let bytes_max = match rng.below(20) {
        0 => BYTES_MAX,
        1..6 => 100_000,
        6 => 1,
        _ => 4_096,
    };
    let len = usize::try_from(rng.below(bytes_max)).expect("at most a megabyte");
    rng.bytes(len)
}

impl Owned {
    /// One value comes, or the oldest one goes.
    pub async fn step(&mut self, worker: &mut Worker, history: &History<Change>) {
        let started = Instant::now();
        if self.ids.len() >= KEPT_MAX {
            let id = self.ids.remove(0);
            let sql = "DELETE FROM blobs WHERE id = ?";
            let fate = Fate::from(&worker.write(sql, &[integer(id)]).await);
            if fate == Fate::Failed {
                self.ids.insert(0, id);
            }
            history.note(Change::Delete(id), fate, started);
            return;
        }
        let id = worker.fresh_id();
        let body = body(id);
        let size = i64::try_from(body.len()).expect("at most a megabyte");
        let args = [integer(id), integer(size), blob(&body)];
        let sql = "INSERT INTO blobs (id, size, body) VALUES (?, ?, ?)";
        let fate = Fate::from(&worker.write(sql, &args).await);
        if fate == Fate::Acknowledged {
            self.ids.push(id);
        }
        history.note(Change::Insert(id), fate, started);
    }
}
