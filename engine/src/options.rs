//! What an engine may use: every bound of the served core, with its default.
//!
//! The daemon derives some of them from the machine's limits; the engine itself reads no
//! configuration. All fields are public and plain: build one with [`Options::new`] and
//! change what you need.

use std::path::PathBuf;
use std::time::Duration;

use crate::statement_gate::Limits;
use crate::store::Synchronous;

/// Settings of an engine.
#[derive(Debug, Clone)]
pub struct Options {
    /// The data directory.
    pub data_dir: PathBuf,
    /// How durable a commit is when it is answered.
    pub synchronous: Synchronous,
    /// Page cache of each connection, in KiB.
    pub cache_kib: u32,
    /// Whether sessions start with foreign keys enforced.
    pub foreign_keys: bool,
    /// Threads that run reads, each with a connection.
    pub readers: usize,
    /// Reads that may wait for a reader; one more is refused as overloaded.
    pub read_queue_max: usize,
    /// A read that waited this long for a reader is answered as overloaded, unexecuted.
    pub read_wait_max: Duration,
    /// Interactive transactions open at once; one more is refused as overloaded.
    pub transactions_max: usize,
    /// Writes that may wait for the writer; one more is refused as overloaded.
    pub write_queue_max: usize,
    /// Bytes of SQL and parameters that may wait for the writer.
    pub write_queue_bytes_max: usize,
    /// Statements in one group commit.
    pub group_statements_max: usize,
    /// Bytes of SQL and parameters in one group commit.
    pub group_bytes_max: usize,
    /// A group that has run this long takes no further statement; the rest goes into the next.
    pub group_time_max: Duration,
    /// A read, or a statement of an interactive transaction, is stopped after this time.
    pub statement_time_max: Duration,
    /// A write outside a transaction is stopped after this time: it holds up everybody.
    pub write_time_max: Duration,
    /// A write that waited this long for the permit is answered as overloaded, unexecuted.
    pub permit_wait_max: Duration,
    /// An interactive transaction without the write permit may be idle this long.
    pub transaction_idle_max: Duration,
    /// An interactive transaction that holds the write permit may be idle this long.
    pub transaction_permit_idle_max: Duration,
    /// An interactive transaction may last this long in all.
    pub transaction_time_max: Duration,
    /// Bytes of values in one result; a larger one is an error.
    pub result_bytes_max: usize,
    /// A write-ahead log of this size is checkpointed as soon as readers let it.
    pub wal_checkpoint_bytes: u64,
    /// A write-ahead log of this size is checkpointed at once: reads that stand in the way
    /// are interrupted, open read transactions rolled back.
    pub wal_bytes_max: u64,
    /// How long a checkpoint waits for the reads inside before it gives up or interrupts.
    pub checkpoint_drain_max: Duration,
    /// A primary with nothing to do for this long checkpoints what is left.
    pub checkpoint_idle: Duration,
    /// Bounds of the statement gate.
    pub limits: Limits,
}

impl Options {
    /// The defaults, for a data directory.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            synchronous: Synchronous::Full,
            cache_kib: 2_000,
            foreign_keys: true,
            readers: 4,
            read_queue_max: 1_024,
            read_wait_max: Duration::from_secs(10),
            transactions_max: 64,
            write_queue_max: 4_096,
            write_queue_bytes_max: 64 << 20,
            group_statements_max: 512,
            group_bytes_max: 4 << 20,
            group_time_max: Duration::from_millis(25),
            statement_time_max: Duration::from_secs(30),
            write_time_max: Duration::from_secs(10),
            permit_wait_max: Duration::from_secs(30),
            transaction_idle_max: Duration::from_secs(30),
            transaction_permit_idle_max: Duration::from_secs(5),
            transaction_time_max: Duration::from_secs(60),
            result_bytes_max: 64 << 20,
            wal_checkpoint_bytes: 4 << 20,
            wal_bytes_max: 64 << 20,
            checkpoint_drain_max: Duration::from_millis(200),
            checkpoint_idle: Duration::from_secs(1),
            limits: Limits::default(),
        }
    }
}
