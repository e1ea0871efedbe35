//! The engine of one node: opens the data directory, starts the threads, gives out sessions.
//!
//! It starts without a role and only reads. [`Engine::start_primary`] makes it take writes;
//! a replica is fed from outside instead. Either way the newest committed position is
//! watched with [`Engine::head`], and [`Engine::fatal`] tells when the process must exit.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::watch;

use crate::adapter::Connection;
use crate::apply::Applier;
use crate::cancel::Reason;
use crate::change::Seq;
use crate::checkpoint::Checkpointer;
use crate::clock;
use crate::error::{Error, Result};
use crate::facts::CurrentFacts;
use crate::high_water::HighWater;
use crate::keeper::Keeper;
use crate::logged;
use crate::meta;
use crate::names;
use crate::openings::{self, NextEpoch, Opening};
use crate::options::Options;
use crate::reader;
use crate::result::Head;
use crate::session::Session;
use crate::shared::{Role, Shared};
use crate::slots::Slot;
use crate::stats::Stats;
use crate::store::Store;
use crate::trim::{self, Trimmed};
use crate::view::read_head;
use crate::writer::{self, WriterJob};

/// See the module's head.
pub struct Engine {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    keeper: Mutex<Option<Keeper>>,
    /// What a replica needs to look after its file; unused on a primary.
    maintenance: Mutex<Maintenance>,
}

/// A database below its high-water mark: see `high_water`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolledBack {
    /// The highest position this node is known to have held.
    pub mark: Seq,
    /// Where its log ends now.
    pub head: Seq,
}

struct Maintenance {
    connection: Option<Connection>,
    /// For the node's own tables.
    internal: Option<Connection>,
    checkpointer: Checkpointer,
}

impl Engine {
    /// Opens a data directory and starts its reader threads.
    pub fn open(options: Options) -> Result<Arc<Self>> {
        if clock::offset_ms() != 0 {
            tracing::warn!(
                offset_ms = clock::offset_ms(),
                "the clock is shifted for a test"
            );
        }
        let store = Store::open_with(&options.data_dir, options.synchronous, options.cache_kib)?;
        let mut connection = store.reader()?;
        let facts = CurrentFacts::read(&mut connection)?;
        let log = (read_head(&mut connection)?, meta::floor(&mut connection)?);
        connection.close()?;
        let high_water = HighWater::open(store.dir())?;
        let shared = Arc::new(Shared::new(options, store, facts, log, high_water));
        let threads = reader::spawn(&shared)?;
        let keeper = Keeper::spawn(&shared)?;
        Ok(Arc::new(Self {
            threads: Mutex::new(threads),
            keeper: Mutex::new(Some(keeper)),
            maintenance: Mutex::new(Maintenance {
                connection: None,
                internal: None,
                checkpointer: Checkpointer::new(),
            }),
            shared,
        }))
    }

    /// Makes this node take writes, again within the present epoch. `why` goes into the
    /// history.
    pub fn start_primary(&self, node: &str, why: &str) -> Result<()> {
        self.start_primary_in(node, why, NextEpoch::Same).map(drop)
    }

    /// Makes this node take writes in the epoch given: a promotion, when it is a new one. The
    /// opening is durable before this returns, and nothing is served before. On a replica the
    /// applier must be gone.
    pub fn start_primary_in(&self, node: &str, why: &str, epoch: NextEpoch) -> Result<Opening> {
        if !matches!(self.role(), Role::Starting | Role::Replica) {
            return Err(Error::Io(format!("this node is already {:?}", self.role())));
        }
        self.check_schema()?;
        test_capture(&self.shared.store)?;
        let mut connection = self.shared.store.capturing(false)?;
        let now_ms = clock::now_ms();
        let opening = openings::open_as_primary(&mut connection, node, why, now_ms, epoch)?;
        self.shared.publish(logged::head(&mut connection)?);
        self.shared.publish_floor(meta::floor(&mut connection)?);
        self.shared.facts.refresh(&mut connection)?;
        connection.close()?;
        tracing::info!(node, why, epoch = opening.epoch, "taking writes");
        let thread = writer::spawn(&self.shared)?;
        self.lock_threads().push(thread);
        self.shared.set_role(Role::Primary);
        Ok(opening)
    }

    /// Makes this node a replica: clients only read, and the applier feeds it. Whoever applies
    /// calls [`Self::note_applied`] and [`Self::maintain`] on the same thread.
    pub fn start_replica(&self) -> Result<Applier> {
        if self.role() != Role::Starting {
            return Err(Error::Io(format!("this node is already {:?}", self.role())));
        }
        let applier = Applier::open(&self.shared.store)?;
        self.with_maintenance(|maintenance, shared| {
            shared.facts.refresh(maintenance.connection(shared)?)
        })?;
        self.shared.set_role(Role::Replica);
        Ok(applier)
    }

    /// From now on nothing is committed for clients, and each is told why: another node leads,
    /// or claims to. Transactions under way fail at their COMMIT at the latest; one that has
    /// begun its COMMIT may still succeed. Reads go on.
    pub fn fence(&self, why: &str) {
        self.shared.set_fence(Some(why.to_owned()));
    }

    /// Writes are taken again.
    pub fn lift_fence(&self) {
        self.shared.set_fence(None);
    }

    /// Announces what was applied, and looks at the schema again if it moved.
    pub fn note_applied(&self, head: Head) -> Result<()> {
        self.with_maintenance(|maintenance, shared| {
            shared.facts.refresh(maintenance.connection(shared)?)
        })?;
        self.shared.publish_head(head);
        Ok(())
    }

    /// Checkpoints when it is due; with `idle` also what little there is. On a replica the
    /// applying thread calls it between two batches; a primary's writer does it by itself.
    pub fn maintain(&self, idle: bool) {
        let done = self.with_maintenance(|maintenance, shared| {
            maintenance.checkpointer.when_due(shared);
            if idle {
                maintenance.checkpointer.when_idle(shared);
            }
            Ok(())
        });
        if let Err(error) = done {
            tracing::warn!(%error, "maintenance failed");
        }
    }

    /// Tells whether this database was rolled back behind its own high-water mark.
    pub fn rolled_back(&self) -> Option<RolledBack> {
        let head = self.shared.head.borrow().seq;
        let mark = self.lock_high_water();
        let rolled_back = mark.is_rolled_back(head);
        rolled_back.then(|| RolledBack {
            mark: mark.mark(),
            head,
        })
    }

    /// Accepts that what was above the present head is lost.
    pub fn accept_rollback(&self) -> Result<()> {
        let head = self.shared.head.borrow().seq;
        self.lock_high_water().reset(head)
    }

    /// A new session.
    pub fn session(self: &Arc<Self>) -> Session {
        Session::new(self.clone())
    }

    /// The newest committed position.
    pub fn head(&self) -> watch::Receiver<Head> {
        self.shared.head.subscribe()
    }

    /// The position from which the log is complete: a follower below it needs a snapshot.
    pub fn floor(&self) -> watch::Receiver<Seq> {
        self.shared.floor.subscribe()
    }

    /// The floor of the node that this one follows; zero until it was told. A replica keeps
    /// as much of the log as its source does, so that it can take its place.
    pub fn source_floor(&self) -> Seq {
        Seq::new(self.shared.source_floor.load(Ordering::Acquire))
    }

    /// Notes what the source says of its floor.
    pub fn note_source_floor(&self, floor: Seq) {
        let told = &self.shared.source_floor;
        told.store(floor.get(), Ordering::Release);
    }

    /// Trims one chunk of the log, up to `up_to` at most, between two groups of the writer or
    /// two batches. `slots` is asked in that very moment; what it gives is stored with the new
    /// floor. Blocks.
    pub fn trim(
        &self,
        up_to: Seq,
        rows_max: u32,
        slots: impl FnOnce() -> Vec<Slot> + Send + 'static,
    ) -> Result<Trimmed> {
        let trimmed = self.with_permit(move |connection| {
            trim::trim_chunk(connection, up_to, rows_max, &slots())
        })?;
        self.shared.publish_floor(trimmed.floor);
        Ok(trimmed)
    }

    /// Becomes `Some` when durability can no longer be promised: the process must exit.
    pub fn fatal(&self) -> watch::Receiver<Option<String>> {
        self.shared.fatal.subscribe()
    }

    /// What this node may do at the moment.
    pub fn role(&self) -> Role {
        self.shared.role()
    }

    /// The data directory and its connections.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// The settings in force.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Runs work of the node itself (trimming, slots, the floor) with the write permit, on a
    /// connection whose writes are not captured. On a replica that is between two batches.
    /// Blocks until it is done: call it from a thread that may.
    pub fn with_permit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.role() == Role::Replica {
            return self.between_batches(work);
        }
        let (respond, answer) = std::sync::mpsc::sync_channel(1);
        let task = Box::new(move |connection: Result<&mut Connection>| {
            respond.send(connection.and_then(work)).ok();
        });
        self.shared.push_write(WriterJob::Task(task), 0)?;
        answer.recv().map_err(|_| Error::Closed)?
    }

    /// What [`Self::with_permit`] is where no writer thread runs.
    fn between_batches<T>(&self, work: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        let turn = self.shared.store.turn();
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut maintenance = self.lock_maintenance();
        if self.role() != Role::Replica {
            return Err(Error::Closed);
        }
        let mut connection = match maintenance.internal.take() {
            Some(connection) => connection,
            None => self.shared.store.internal()?,
        };
        let outcome = work(&mut connection);
        let clean = connection.is_autocommit() || connection.execute("ROLLBACK", &[]).is_ok();
        if connection.is_broken() || !clean {
            self.shared.retire(connection);
        } else {
            maintenance.internal = Some(connection);
        }
        outcome
    }

    /// All counters and gauges of this moment.
    pub fn stats(&self) -> Stats {
        let shared = &self.shared;
        let database = std::fs::metadata(shared.store.database_path());
        Stats {
            head: shared.head.borrow().seq,
            floor: *shared.floor.borrow(),
            wal_bytes: shared.wal_bytes(),
            database_bytes: database.map_or(0, |meta| meta.len()),
            write_queue_depth: shared.writes.len() as u64,
            read_queue_depth: shared.reads.len() as u64,
            open_transactions: shared.transactions.len() as u64,
            open_reads: shared.store.gate().inside() as u64,
            ..shared.counters.snapshot()
        }
    }

    /// Takes no more work, finishes what is queued, rolls open transactions back, empties the
    /// write-ahead log and ends the threads. Blocks. Calling it again does nothing.
    pub fn shutdown(&self) {
        self.shared.set_role(Role::Closed);
        self.shared.transactions.close();
        self.shared.writes.finish();
        self.shared.reads.finish();
        self.shared.stop_reads(Reason::Closing);
        let threads = std::mem::take(&mut *self.lock_threads());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the engine had panicked");
            }
        }
        self.shared.transactions.wait_for_threads();
        self.lock_maintenance().close(&self.shared);
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        *keeper = None;
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// A schema that would not replicate came in behind the gate's back.
    fn check_schema(&self) -> Result<()> {
        let facts = self.shared.facts.get();
        let Some(first) = facts.objections().first() else {
            return Ok(());
        };
        let count = facts.objections().len();
        Err(Error::refused(
            first.reason,
            format!(
                "{count} objects of this database would not replicate; the first is {}: {}",
                first.object, first.message
            ),
        ))
    }

    fn with_maintenance<T>(
        &self,
        work: impl FnOnce(&mut Maintenance, &Shared) -> Result<T>,
    ) -> Result<T> {
        work(&mut self.lock_maintenance(), &self.shared)
    }

    fn lock_maintenance(&self) -> MutexGuard<'_, Maintenance> {
        self.maintenance
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_high_water(&self) -> MutexGuard<'_, HighWater> {
        self.shared
            .high_water
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Maintenance {
    fn connection(&mut self, shared: &Shared) -> Result<&mut Connection> {
        if self.connection.as_ref().is_none_or(Connection::is_broken) {
            self.connection = Some(shared.store.reader()?);
        }
        self.connection.as_mut().ok_or(Error::Closed)
    }

    /// The last checkpoint of a replica; a primary's writer has done it already.
    fn close(&mut self, shared: &Shared) {
        let both = [self.connection.take(), self.internal.take()];
        for connection in both.into_iter().flatten() {
            shared.retire(connection);
        }
        self.checkpointer.close(shared);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Proves that a write is captured, and takes it back.
fn test_capture(store: &Store) -> Result<()> {
    let mut connection = store.capturing(false)?;
    connection.execute("BEGIN IMMEDIATE", &[])?;
    let before = logged::head(&mut connection)?;
    let touch = format!("UPDATE {} SET n = n + 1", names::TICK_TABLE);
    connection.execute(&touch, &[])?;
    let after = logged::head(&mut connection)?;
    connection.execute("ROLLBACK", &[])?;
    connection.close()?;
    if after > before {
        Ok(())
    } else {
        Err(Error::Fatal(
            "the capture self-test failed: a write left no log row".into(),
        ))
    }
}
