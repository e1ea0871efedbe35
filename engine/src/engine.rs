//! The engine of one node: opens the data directory, starts the threads, gives out sessions.
//!
//! It starts without a role and only reads. [`Engine::start_primary`] makes it take writes;
//! a replica is fed from outside instead. Either way the newest committed position is
//! watched with [`Engine::head`], and [`Engine::fatal`] tells when the process must exit.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::watch;

use crate::adapter::Connection;
use crate::cancel::Reason;
use crate::clock;
use crate::error::{Error, Result};
use crate::facts::CurrentFacts;
use crate::logged;
use crate::names;
use crate::options::Options;
use crate::reader;
use crate::result::Head;
use crate::session::Session;
use crate::shared::{Role, Shared};
use crate::stats::Stats;
use crate::store::Store;
use crate::view::read_head;
use crate::writer::{self, WriterJob};

/// See the module's head.
pub struct Engine {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
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
        let head = read_head(&mut connection)?;
        connection.close()?;
        let shared = Arc::new(Shared::new(options, store, facts, head));
        let threads = reader::spawn(&shared)?;
        Ok(Arc::new(Self {
            shared,
            threads: Mutex::new(threads),
        }))
    }

    /// Makes this node take writes. `why` goes into the history.
    pub fn start_primary(&self, node: &str, why: &str) -> Result<()> {
        if self.role() != Role::Starting {
            return Err(Error::Io(format!("this node is already {:?}", self.role())));
        }
        test_capture(&self.shared.store)?;
        tracing::info!(node, why, "taking writes");
        let thread = writer::spawn(&self.shared)?;
        self.lock_threads().push(thread);
        self.shared.set_role(Role::Primary);
        Ok(())
    }

    /// A new session.
    pub fn session(self: &Arc<Self>) -> Session {
        Session::new(self.clone())
    }

    /// The newest committed position.
    pub fn head(&self) -> watch::Receiver<Head> {
        self.shared.head.subscribe()
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
    /// connection whose writes are not captured. Blocks until it is done: call it from a
    /// thread that may.
    pub fn with_permit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (respond, answer) = std::sync::mpsc::sync_channel(1);
        let task = Box::new(move |connection: Result<&mut Connection>| {
            respond.send(connection.and_then(work)).ok();
        });
        self.shared.push_write(WriterJob::Task(task), 0)?;
        answer.recv().map_err(|_| Error::Closed)?
    }

    /// All counters and gauges of this moment.
    pub fn stats(&self) -> Stats {
        let shared = &self.shared;
        let database = std::fs::metadata(shared.store.database_path());
        Stats {
            head: shared.head.borrow().seq,
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
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn lock_threads(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
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
