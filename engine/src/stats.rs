//! Counters and histograms of the served core, kept as plain atomics.
//!
//! Threads count into one [`Counters`]; [`crate::Engine::stats`] copies it, with the gauges
//! of the moment, into a [`Stats`] that the daemon turns into metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::change::Seq;

/// Upper bounds of the buckets for sizes of groups.
const GROUP_BOUNDS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
/// Upper bounds, in seconds, of the buckets for times.
const SECONDS_BOUNDS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0,
];

/// A copy of all numbers at one moment.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// The newest committed position.
    pub head: Seq,
    /// The position from which the log is complete.
    pub floor: Seq,
    /// Size of the write-ahead log's file.
    pub wal_bytes: u64,
    /// Size of the database file.
    pub database_bytes: u64,
    /// Writes that wait for the writer.
    pub write_queue_depth: u64,
    /// Reads that wait for a reader.
    pub read_queue_depth: u64,
    /// Interactive transactions that are open.
    pub open_transactions: u64,
    /// Read transactions that are open, of every kind.
    pub open_reads: u64,
    /// Statements in each group commit.
    pub group_commit_size: Histogram,
    /// Seconds of each COMMIT.
    pub commit_seconds: Histogram,
    /// Seconds that writes and transactions waited for the write permit.
    pub write_permit_wait_seconds: Histogram,
    /// Seconds from a session's call to its answer, by kind.
    pub sql_seconds: BTreeMap<&'static str, Histogram>,
    /// Statements by kind and outcome (`ok`, `error`).
    pub sql_requests: BTreeMap<(&'static str, &'static str), u64>,
    /// Requests turned away for want of room, by queue.
    pub admission_rejected: BTreeMap<&'static str, u64>,
    /// Statements refused by the gate, by reason.
    pub statements_refused: BTreeMap<&'static str, u64>,
    /// Interactive transactions ended by us, by reason.
    pub transactions_ended: BTreeMap<&'static str, u64>,
    /// Groups that were run again, by cause.
    pub groups_rerun: BTreeMap<&'static str, u64>,
    /// Writes that left no trace in the log. Anything but zero is a defect.
    pub uncaptured_writes: u64,
    /// Panics inside the engine that were contained.
    pub engine_panics: u64,
    /// Checkpoints that emptied the log, and those that readers kept from it.
    pub checkpoints_complete: u64,
    /// See `checkpoints_complete`.
    pub checkpoints_incomplete: u64,
    /// Seconds during which a checkpoint held new readers.
    pub checkpoint_seconds: Histogram,
    /// The largest write-ahead log seen by the writer.
    pub wal_bytes_seen_max: u64,
}

/// Counts in buckets; the last bucket has no upper bound.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    /// Upper bounds, ascending.
    pub bounds: &'static [f64],
    /// One more than there are bounds. Not cumulative.
    pub counts: Vec<u64>,
    /// Sum of all observations.
    pub sum: f64,
}

impl Histogram {
    /// Number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// What the threads count into.
pub(crate) struct Counters {
    pub(crate) group_size: LiveHistogram,
    pub(crate) commit_seconds: LiveHistogram,
    pub(crate) permit_wait_seconds: LiveHistogram,
    pub(crate) checkpoint_seconds: LiveHistogram,
    pub(crate) read_seconds: LiveHistogram,
    pub(crate) write_seconds: LiveHistogram,
    pub(crate) transaction_seconds: LiveHistogram,
    pub(crate) uncaptured_writes: AtomicU64,
    pub(crate) engine_panics: AtomicU64,
    pub(crate) checkpoints_complete: AtomicU64,
    pub(crate) checkpoints_incomplete: AtomicU64,
    pub(crate) wal_bytes_seen_max: AtomicU64,
    outcomes: [AtomicU64; 6],
    by_word: Mutex<BTreeMap<(Family, &'static str), u64>>,
}

/// Families of rare events that are counted by a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    Rejected,
    Refused,
    TransactionEnded,
    GroupRerun,
}

/// What a session asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A read outside a transaction.
    Read,
    /// A write outside a transaction.
    Write,
    /// A statement of an interactive transaction.
    Transaction,
}

/// A histogram under construction.
pub(crate) struct LiveHistogram {
    bounds: &'static [f64],
    counts: Vec<AtomicU64>,
    /// In millionths, so that it fits an atomic.
    sum_millionths: AtomicU64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        let seconds = || LiveHistogram::new(SECONDS_BOUNDS);
        Self {
            group_size: LiveHistogram::new(GROUP_BOUNDS),
            commit_seconds: seconds(),
            permit_wait_seconds: seconds(),
            checkpoint_seconds: seconds(),
            read_seconds: seconds(),
            write_seconds: seconds(),
            transaction_seconds: seconds(),
            uncaptured_writes: AtomicU64::new(0),
            engine_panics: AtomicU64::new(0),
            checkpoints_complete: AtomicU64::new(0),
            checkpoints_incomplete: AtomicU64::new(0),
            wal_bytes_seen_max: AtomicU64::new(0),
            outcomes: Default::default(),
            by_word: Mutex::new(BTreeMap::new()),
        }
    }

    /// Counts a rare event by its word.
    pub(crate) fn count(&self, family: Family, word: &'static str) {
        let mut words = self.by_word.lock().unwrap_or_else(PoisonError::into_inner);
        *words.entry((family, word)).or_default() += 1;
    }

    /// Counts an answered statement.
    pub(crate) fn answered(&self, asked: Asked, ok: bool, took: Duration) {
        let slot = asked as usize * 2 + usize::from(ok);
        self.outcomes[slot].fetch_add(1, Ordering::Relaxed);
        match asked {
            Asked::Read => self.read_seconds.observe_time(took),
            Asked::Write => self.write_seconds.observe_time(took),
            Asked::Transaction => self.transaction_seconds.observe_time(took),
        }
    }

    /// A copy; gauges are left at zero for the engine to fill in.
    pub(crate) fn snapshot(&self) -> Stats {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Stats {
            group_commit_size: self.group_size.snapshot(),
            commit_seconds: self.commit_seconds.snapshot(),
            write_permit_wait_seconds: self.permit_wait_seconds.snapshot(),
            checkpoint_seconds: self.checkpoint_seconds.snapshot(),
            sql_seconds: [Asked::Read, Asked::Write, Asked::Transaction]
                .map(|asked| (asked.word(), self.seconds_of(asked).snapshot()))
                .into(),
            sql_requests: self.requests(),
            admission_rejected: self.words(Family::Rejected),
            statements_refused: self.words(Family::Refused),
            transactions_ended: self.words(Family::TransactionEnded),
            groups_rerun: self.words(Family::GroupRerun),
            uncaptured_writes: load(&self.uncaptured_writes),
            engine_panics: load(&self.engine_panics),
            checkpoints_complete: load(&self.checkpoints_complete),
            checkpoints_incomplete: load(&self.checkpoints_incomplete),
            wal_bytes_seen_max: load(&self.wal_bytes_seen_max),
            ..Stats::default()
        }
    }

    fn seconds_of(&self, asked: Asked) -> &LiveHistogram {
        match asked {
            Asked::Read => &self.read_seconds,
            Asked::Write => &self.write_seconds,
            Asked::Transaction => &self.transaction_seconds,
        }
    }

    fn requests(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        let mut requests = BTreeMap::new();
        for asked in [Asked::Read, Asked::Write, Asked::Transaction] {
            for (ok, word) in [(false, "error"), (true, "ok")] {
                let slot = asked as usize * 2 + usize::from(ok);
                let count = self.outcomes[slot].load(Ordering::Relaxed);
                requests.insert((asked.word(), word), count);
            }
        }
        requests
    }

    fn words(&self, family: Family) -> BTreeMap<&'static str, u64> {
        let words = self.by_word.lock().unwrap_or_else(PoisonError::into_inner);
        let of_family = words.iter().filter(|((f, _), _)| *f == family);
        of_family.map(|((_, word), n)| (*word, *n)).collect()
    }
}

impl Asked {
    fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Transaction => "transaction",
        }
    }
}

impl LiveHistogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum_millionths: AtomicU64::new(0),
        }
    }

    pub(crate) fn observe_time(&self, took: Duration) {
        self.observe(took.as_secs_f64());
    }

    pub(crate) fn observe(&self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let millionths = (value * 1e6) as u64;
        self.sum_millionths.fetch_add(millionths, Ordering::Relaxed);
    }

    fn snapshot(&self) -> Histogram {
        let counts = self.counts.iter();
        Histogram {
            bounds: self.bounds,
            counts: counts.map(|n| n.load(Ordering::Relaxed)).collect(),
            sum: self.sum_millionths.load(Ordering::Relaxed) as f64 / 1e6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_land_in_the_bucket_whose_bound_they_do_not_pass() {
        let live = LiveHistogram::new(GROUP_BOUNDS);
        for size in [1.0, 2.0, 3.0, 4.0, 1_000.0] {
            live.observe(size);
        }
        let seen = live.snapshot();
        assert_eq!(&seen.counts[..3], &[1, 1, 2]);
        assert_eq!(seen.counts.last(), Some(&1));
        assert_eq!(seen.count(), 5);
        assert!((seen.sum - 1_010.0).abs() < 1e-6);
    }

    #[test]
    fn rare_events_are_counted_by_word() {
        let counters = Counters::new();
        counters.count(Family::Refused, "attach");
        counters.count(Family::Refused, "attach");
        counters.count(Family::Rejected, "write_queue");
        counters.answered(Asked::Write, true, Duration::from_millis(3));
        let stats = counters.snapshot();
        assert_eq!(stats.statements_refused["attach"], 2);
        assert_eq!(stats.admission_rejected["write_queue"], 1);
        assert_eq!(stats.sql_requests[&("write", "ok")], 1);
    }
}
