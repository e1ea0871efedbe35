//! Judges what is stored against what clients know.
//!
//! Checkers read the histories that workloads left and the rows of a *stopped* node, with C
//! SQLite: neither the engine nor the daemon has a say. Their rule is one sentence: everything
//! acknowledged is there, nothing failed is there, and what is indeterminate is there wholly
//! or not at all.

mod bank;
mod blobs;
mod churn;
pub mod condition;
mod register;
mod schema;
mod set;
pub mod stored;
mod wide;

use anyhow::Result;

pub use condition::Condition;
pub use stored::Stored;

use crate::history::Tally;
use crate::workload::Ledgers;

/// Problems named in full; the rest is counted.
const NAMED_MAX: usize = 10;

/// What one checker found.
#[derive(Debug, Clone)]
pub struct Report {
    /// Which workload.
    pub workload: &'static str,
    /// What its clients know.
    pub tally: Tally,
    /// Operations whose effect is stored.
    pub present: u64,
    /// Everything that is wrong, one sentence each, at most a few of them.
    pub problems: Vec<String>,
    /// How many things are wrong.
    pub wrong: u64,
}

/// Judges a stopped node's rows.
pub fn judge(ledgers: &Ledgers, stored: &Stored) -> Result<Vec<Report>> {
    Ok(vec![
        bank::judge(&ledgers.bank.records(), stored)?,
        set::judge(&ledgers.set.records(), stored)?,
        register::judge(&ledgers.register.records(), stored)?,
        churn::judge(&ledgers.churn.records(), stored)?,
        schema::judge(&ledgers.schema.records(), stored)?,
        blobs::judge(&ledgers.blobs.records(), stored)?,
        wide::judge(&ledgers.wide.records(), stored)?,
    ])
}

impl Report {
    fn new<T>(workload: &'static str, records: &[crate::history::Record<T>]) -> Self {
        let mut tally = Tally::default();
        for record in records {
            tally.count(record.fate);
        }
        Self {
            workload,
            tally,
            present: 0,
            problems: Vec::new(),
            wrong: 0,
        }
    }

    fn problem(&mut self, what: String) {
        self.wrong += 1;
        if self.problems.len() < NAMED_MAX {
            self.problems.push(what);
        }
    }

    /// Notes whether an operation's effect is there, which its fate may forbid or demand.
    fn presence(
        &mut self,
        fate: crate::history::Fate,
        is_present: bool,
        what: impl FnOnce() -> String,
    ) {
        use crate::history::Fate::{Acknowledged, Failed};
        if is_present {
            self.present += 1;
        }
        match (fate, is_present) {
            (Acknowledged, false) => {
                self.problem(format!("lost although acknowledged: {}", what()))
            }
            (Failed, true) => self.problem(format!("there although it failed: {}", what())),
            _ => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::time::Duration;

    use crate::history::{Fate, Record};

    /// A record whose times are its place in a sequence.
    pub fn record<T>(op: T, fate: Fate, place: u64) -> Record<T> {
        Record {
            op,
            fate,
            started: Duration::from_secs(place),
            ended: Duration::from_millis(place * 1_000 + 500),
        }
    }
}
