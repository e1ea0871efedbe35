//! The database of a node that can be exchanged while the process runs.
//!
//! A snapshot replaces the file, so the engine has to be closed, the file put in place, and
//! the engine opened again. Everybody else sees the open engine through a `watch`: clients
//! of this node, the streams it serves. Each of them must let go of it when the value
//! changes; closing waits for that, because the directory's lock goes with the last holder.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::snapshot::Checked;
use tidegate_engine::{Applier, Engine, Error, Options, Result};
use tokio::sync::watch;

/// How long closing waits for those who still hold the engine.
const CLOSE_DEADLINE: Duration = Duration::from_secs(30);

/// Opens and closes the engine of a replica.
pub struct Mount {
    options: Options,
    current: watch::Sender<Option<Arc<Engine>>>,
}

impl Mount {
    /// Nothing is open yet.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            current: watch::Sender::new(None),
        }
    }

    /// The open engine, for everybody else.
    pub fn current(&self) -> watch::Receiver<Option<Arc<Engine>>> {
        self.current.subscribe()
    }

    /// Settings of the engine.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Opens the engine as a replica's and shows it to everybody. Blocks.
    pub fn open(&self) -> Result<(Arc<Engine>, Applier)> {
        let engine = Engine::open(self.options.clone())?;
        let applier = engine.start_replica()?;
        self.current.send_replace(Some(engine.clone()));
        Ok((engine, applier))
    }

    /// Shows everybody an engine that somebody else opened: a primary's.
    pub fn show(&self, engine: Arc<Engine>) {
        self.current.send_replace(Some(engine));
    }

    /// Takes the engine from everybody and closes it. Blocks until the last holder is gone.
    pub fn close(&self, engine: Arc<Engine>) -> Result<()> {
        self.current.send_replace(None);
        engine.shutdown();
        let deadline = Instant::now() + CLOSE_DEADLINE;
        let mut engine = engine;
        loop {
            match Arc::try_unwrap(engine) {
                Ok(last) => {
                    drop(last);
                    return Ok(());
                }
                Err(held) if Instant::now() < deadline => {
                    engine = held;
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(held) => {
                    return Err(Error::Io(format!(
                        "the database is still in use by {} others",
                        Arc::strong_count(&held) - 1
                    )));
                }
            }
        }
    }

    /// Puts a snapshot in the place of the closed database. Blocks.
    pub fn install(&self, snapshot: Checked) -> Result<()> {
        snapshot.install()
    }
}
