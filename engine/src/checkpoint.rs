//! Checkpoints: keeping the write-ahead log bounded.
//!
//! The engine's own are off (they run inside a commit), and passive ones never bound the log
//! while anybody reads: it grew 155 MB in four seconds. What works is to hold new readers at
//! the read gate, wait for those inside, and truncate, with the write permit held. The
//! thread that owns the permit does it between two jobs: the writer on a primary, the
//! applying thread on a replica.
//!
//! From `wal_checkpoint_bytes` on it is tried and given up after a short wait, to be tried
//! again a little later. From `wal_bytes_max` on it is not given up so easily: client reads
//! that stand in the way are interrupted (to begin again behind the checkpoint, a few times) and
//! open read transactions are rolled back. Reads of our own (tail, digest) are short and are waited for. A snapshot or an integrity check reads
//! the whole file; nobody waits or is interrupted while one runs, and the log grows that long.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::adapter::Connection;
use crate::cancel::Reason;
use crate::error::{Error, Result};
use crate::shared::Shared;

/// After a checkpoint that readers prevented, the next try waits this long.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// A checkpoint without need waits for readers only this long.
const IDLE_DRAIN_MAX: Duration = Duration::from_millis(20);

/// Does checkpoints for the thread that owns the permit.
pub(crate) struct Checkpointer {
    connection: Option<Connection>,
    not_before: Option<Instant>,
}

impl Checkpointer {
    pub(crate) fn new() -> Self {
        Self {
            connection: None,
            not_before: None,
        }
    }

    /// Checkpoints if the log has grown enough.
    pub(crate) fn when_due(&mut self, shared: &Shared) {
        let bytes = shared.wal_bytes();
        let seen_max = &shared.counters.wal_bytes_seen_max;
        seen_max.fetch_max(bytes, Ordering::Relaxed);
        let options = &shared.options;
        let too_large = bytes >= options.wal_bytes_max;
        if bytes < options.wal_checkpoint_bytes || (!too_large && self.must_wait()) {
            return;
        }
        self.note(shared, |this| {
            this.run(shared, options.checkpoint_drain_max, too_large)
        });
    }

    /// Checkpoints whatever there is, unless somebody reads.
    pub(crate) fn when_idle(&mut self, shared: &Shared) {
        if shared.wal_bytes() > 0 && !self.must_wait() {
            self.note(shared, |this| this.run(shared, IDLE_DRAIN_MAX, false));
        }
    }

    /// The last checkpoint, then the connection is closed.
    pub(crate) fn close(&mut self, shared: &Shared) {
        if shared.wal_bytes() > 0 && shared.fatal.borrow().is_none() {
            self.note(shared, |this| {
                this.run(shared, shared.options.checkpoint_drain_max, true)
            });
        }
        if let Some(connection) = self.connection.take() {
            shared.retire(connection);
        }
    }

    fn must_wait(&self) -> bool {
        self.not_before.is_some_and(|until| Instant::now() < until)
    }

    fn note(&mut self, shared: &Shared, run: impl FnOnce(&mut Self) -> Result<bool>) {
        let counters = &shared.counters;
        match run(self) {
            Ok(true) => {
                counters
                    .checkpoints_complete
                    .fetch_add(1, Ordering::Relaxed);
                self.not_before = None;
            }
            Ok(false) => {
                counters
                    .checkpoints_incomplete
                    .fetch_add(1, Ordering::Relaxed);
                self.not_before = Some(Instant::now() + RETRY_AFTER);
            }
            Err(error) => {
                self.not_before = Some(Instant::now() + RETRY_AFTER);
                if matches!(error, Error::Io(_) | Error::Panicked(_)) {
                    shared.fail(format!("a checkpoint failed: {error}"));
                } else {
                    tracing::warn!(%error, "a checkpoint failed");
                }
            }
        }
    }

    /// True when the log is empty afterwards.
    fn run(&mut self, shared: &Shared, drain_max: Duration, insist: bool) -> Result<bool> {
        let gate = shared.store.gate();
        let started = Instant::now();
        let mut drained = gate.drain(drain_max);
        if drained.is_none() && insist && !gate.has_long() {
            interrupt_reads(shared);
            drained = gate.drain(drain_max);
        }
        let Some(_drained) = drained else {
            return Ok(false);
        };
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => shared.store.internal()?,
        };
        let outcome = connection.checkpoint_truncate();
        shared
            .counters
            .checkpoint_seconds
            .observe_time(started.elapsed());
        if connection.is_broken() {
            shared.retire(connection);
        } else {
            self.connection = Some(connection);
        }
        Ok(outcome?.complete)
    }
}

/// Stops the clients' reads: those outside transactions are interrupted, transactions that
/// hold a snapshot without the permit are rolled back.
fn interrupt_reads(shared: &Shared) {
    shared.stop_reads(Reason::Checkpoint);
    shared.transactions.evict_snapshots();
}
