//! What clients did and what they know of it.
//!
//! A workload writes here; a checker reads. Each operation has one of three fates. The third
//! one, *indeterminate*, is what makes a checker honest: a request that was never answered
//! may have been executed or not, and either is right.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::client::Outcome;

/// What became of an operation, as its client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// Answered with success: must be there.
    Acknowledged,
    /// Answered with an error, or never carried: must not be there.
    Failed,
    /// Not answered, or answered with "not known": either.
    Indeterminate,
}

/// One operation.
#[derive(Debug, Clone)]
pub struct Record<T> {
    /// What was asked.
    pub op: T,
    /// What became of it.
    pub fate: Fate,
    /// When it was sent, since the start of the history.
    pub started: Duration,
    /// When its fate was known.
    pub ended: Duration,
}

/// Operations of one kind, in the order in which their fates became known.
#[derive(Debug)]
pub struct History<T> {
    epoch: Instant,
    records: Mutex<Vec<Record<T>>>,
}

/// How many operations had which fate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Answered with success.
    pub acknowledged: u64,
    /// Answered with an error.
    pub failed: u64,
    /// Fate unknown.
    pub indeterminate: u64,
}

impl From<&Outcome> for Fate {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Acknowledged(_) => Self::Acknowledged,
            Outcome::Failed(..) => Self::Failed,
            Outcome::Indeterminate(_) => Self::Indeterminate,
        }
    }
}

impl<T> History<T> {
    /// An empty history whose times count from `epoch`.
    pub fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            records: Mutex::new(Vec::new()),
        }
    }

    /// Notes an operation that was sent at `started` and whose fate is known now.
    pub fn note(&self, op: T, fate: Fate, started: Instant) {
        let record = Record {
            op,
            fate,
            started: started.duration_since(self.epoch),
            ended: self.epoch.elapsed(),
        };
        self.lock().push(record);
    }

    /// A copy of everything noted so far.
    pub fn records(&self) -> Vec<Record<T>>
    where
        T: Clone,
    {
        self.lock().clone()
    }

    /// How many had which fate.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for record in self.lock().iter() {
            tally.count(record.fate);
        }
        tally
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Record<T>>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    /// Counts one more.
    pub fn count(&mut self, fate: Fate) {
        match fate {
            Fate::Acknowledged => self.acknowledged += 1,
            Fate::Failed => self.failed += 1,
            Fate::Indeterminate => self.indeterminate += 1,
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.acknowledged + self.failed + self.indeterminate
    }
}
