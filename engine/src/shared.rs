//! What the threads of one engine share.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::adapter::Connection;
use crate::cancel::{Cancel, Reason};
use crate::change::Seq;
use crate::clock;
use crate::error::{Error, Result};
use crate::facts::CurrentFacts;
use crate::high_water::HighWater;
use crate::options::Options;
use crate::queue::{Queue, Refused};
use crate::reader::ReadJob;
use crate::result::Head;
use crate::stats::{Counters, Family};
use crate::store::Store;
use crate::transactions::Transactions;
use crate::writer::WriterJob;

/// Stacks of threads that run SQL: the engine recurses over what it parses.
pub(crate) const STACK_BYTES: usize = 16 << 20;

/// So many panics of the engine ...
const PANICS_MAX: usize = 3;
/// ... within this time end the process.
const PANIC_WINDOW: Duration = Duration::from_secs(10);

/// What this node may do at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// Open, but neither primary nor replica yet: only reads.
    Starting,
    /// Takes writes.
    Primary,
    /// Follows a primary: clients only read.
    Replica,
    /// Shut down.
    Closed,
}

/// See the module's head.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) counters: Counters,
    pub(crate) facts: CurrentFacts,
    pub(crate) writes: Queue<WriterJob>,
    pub(crate) reads: Queue<ReadJob>,
    /// What each reader thread is running.
    pub(crate) reading: Vec<Mutex<Option<Arc<Cancel>>>>,
    pub(crate) transactions: Transactions,
    pub(crate) head: watch::Sender<Head>,
    pub(crate) floor: watch::Sender<Seq>,
    /// The floor of the node that this one follows, as far as it was told; zero before.
    pub(crate) source_floor: AtomicU64,
    pub(crate) fatal: watch::Sender<Option<String>>,
    pub(crate) high_water: Mutex<HighWater>,
    /// Why this node must not commit for clients, while that is so.
    fence: Mutex<Option<String>>,
    /// When the engine panicked lately.
    panics: Mutex<Vec<Instant>>,
    role: AtomicU8,
    /// Dropped last.
    pub(crate) store: Store,
}

impl Shared {
    pub(crate) fn new(
        options: Options,
        store: Store,
        facts: CurrentFacts,
        (head, floor): (Seq, Seq),
        high_water: HighWater,
    ) -> Self {
        let readers = options.readers.max(1);
        Self {
            counters: Counters::new(),
            facts,
            writes: Queue::new(options.write_queue_max, options.write_queue_bytes_max),
            reads: Queue::new(options.read_queue_max, options.write_queue_bytes_max),
            reading: (0..readers).map(|_| Mutex::new(None)).collect(),
            transactions: Transactions::new(options.transactions_max),
            head: watch::Sender::new(Head {
                seq: head,
                committed_ms: clock::now_ms(),
            }),
            floor: watch::Sender::new(floor),
            source_floor: AtomicU64::new(0),
            fatal: watch::Sender::new(None),
            high_water: Mutex::new(high_water),
            fence: Mutex::new(None),
            panics: Mutex::new(Vec::new()),
            role: AtomicU8::new(Role::Starting as u8),
            options,
            store,
        }
    }

    pub(crate) fn role(&self) -> Role {
        const ROLES: [Role; 4] = [Role::Starting, Role::Primary, Role::Replica, Role::Closed];
        ROLES[usize::from(self.role.load(Ordering::Acquire))]
    }

    pub(crate) fn set_role(&self, role: Role) {
        self.role.store(role as u8, Ordering::Release);
    }

    /// An error unless this node takes writes.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if let Some(why) = self.fatal.borrow().as_ref() {
            return Err(Error::Fatal(why.clone()));
        }
        match self.role() {
            Role::Primary => self.check_fence(),
            Role::Closed => Err(Error::Closed),
            Role::Replica => Err(Error::ReadOnly(
                "this node is a replica: send writes to the primary".into(),
            )),
            // A node that would lead but may not never gets beyond this.
            Role::Starting => {
                self.check_fence()?;
                Err(Error::ReadOnly("this node is starting".into()))
            }
        }
    }

    /// An error while this node must not commit for clients. Asked when a write comes in
    /// and once more before its COMMIT, so that what was under way is refused too.
    pub(crate) fn check_fence(&self) -> Result<()> {
        match &*self.lock_fence() {
            Some(why) => Err(Error::Fenced(why.clone())),
            None => Ok(()),
        }
    }

    pub(crate) fn set_fence(&self, why: Option<String>) {
        *self.lock_fence() = why;
    }

    fn lock_fence(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.fence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a job to the writer, or says at once why not.
    pub(crate) fn push_write(&self, job: WriterJob, bytes: usize) -> Result<()> {
        self.check_writable()?;
        match self.writes.push(job, bytes) {
            Ok(()) => Ok(()),
            Err((_, Refused::Closed)) => Err(Error::Closed),
            Err((_, Refused::Full)) => Err(self.overloaded(
                "write_queue",
                "too many writes are waiting; try again in a moment",
            )),
        }
    }

    /// Counts and words a request turned away for want of room.
    pub(crate) fn overloaded(&self, queue: &'static str, message: &str) -> Error {
        self.counters.count(Family::Rejected, queue);
        Error::Overloaded(message.to_owned())
    }

    /// Announces a committed position.
    pub(crate) fn publish(&self, seq: Seq) {
        self.publish_head(Head {
            seq,
            committed_ms: clock::now_ms(),
        });
    }

    pub(crate) fn publish_head(&self, head: Head) {
        self.head.send_if_modified(|current| {
            let newer = head.seq > current.seq;
            if newer {
                *current = head;
            }
            newer
        });
    }

    /// Announces the floor of the log, which never falls.
    pub(crate) fn publish_floor(&self, floor: Seq) {
        self.floor.send_if_modified(|current| {
            let higher = floor > *current;
            if higher {
                *current = floor;
            }
            higher
        });
    }

    /// Durability can no longer be promised: nothing is acknowledged from now on, and the
    /// process must exit.
    pub(crate) fn fail(&self, why: String) {
        tracing::error!(%why, "fatal: this node stops acknowledging writes");
        self.fatal.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                *current = Some(why);
            }
            first
        });
    }

    /// Size of the write-ahead log's file.
    pub(crate) fn wal_bytes(&self) -> u64 {
        let mut path = self.store.database_path().into_os_string();
        path.push("-wal");
        std::fs::metadata(path).map_or(0, |meta| meta.len())
    }

    /// Notes what a reader thread is running, so that a checkpoint can stop it.
    pub(crate) fn set_reading(&self, slot: usize, cancel: Option<Arc<Cancel>>) {
        let mut reading = self.reading[slot]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *reading = cancel;
    }

    /// Stops what the reader threads are running.
    pub(crate) fn stop_reads(&self, reason: Reason) {
        for slot in &self.reading {
            let reading = slot.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(cancel) = reading.as_ref() {
                cancel.cancel(reason);
            }
        }
    }

    /// Gets rid of a connection. After a panic its locks must go too, so it is closed even
    /// then; what is left of it is not our concern any more.
    pub(crate) fn retire(&self, connection: Connection) {
        if connection.is_broken() {
            self.note_panic();
        }
        if let Err(error) = connection.close() {
            tracing::warn!(%error, "closing a connection failed");
        }
    }

    /// One panic is a statement's own misfortune. Several in a short time are not, and what
    /// the engine holds in memory is no longer to be trusted: starting anew is.
    fn note_panic(&self) {
        self.counters.engine_panics.fetch_add(1, Ordering::Relaxed);
        let mut panics = self.panics.lock().unwrap_or_else(PoisonError::into_inner);
        panics.retain(|at| at.elapsed() < PANIC_WINDOW);
        panics.push(Instant::now());
        if panics.len() >= PANICS_MAX {
            self.fail(format!(
                "the engine panicked {PANICS_MAX} times within {PANIC_WINDOW:?}"
            ));
        }
    }

    /// Time limit of an interactive statement with so much of its transaction left.
    pub(crate) fn statement_time(&self, left: Duration) -> Duration {
        // Zero would mean no limit at all.
        self.options
            .statement_time_max
            .min(left)
            .max(Duration::from_millis(1))
    }
}
