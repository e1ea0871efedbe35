//! An engine that serves in this process, asked step by step: gate, sessions, group commit
//! and log are the real ones, only the network is missing.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use tidegate_engine::engine::Engine;
use tidegate_engine::error::Error;
use tidegate_engine::openings::NextEpoch;
use tidegate_engine::options::Options;
use tidegate_engine::result::{Params, ResultSet};
use tidegate_engine::session::Session;
use tidegate_engine::store::{Store, Synchronous};
use tokio::runtime::Runtime;

/// A primary with one session.
pub struct Served {
    /// First, so that it goes before the engine it belongs to.
    session: Option<Session>,
    engine: Arc<Engine>,
    runtime: Runtime,
}

impl Served {
    /// Opens, or creates, a data directory as a primary. Commits are not synced: these tests
    /// are about rows.
    pub fn open(dir: &Path) -> Result<Self> {
        Self::open_in(dir, NextEpoch::Same)
    }

    /// Makes a directory that followed until now the primary of the next epoch.
    pub fn promote(dir: &Path) -> Result<Self> {
        Self::open_in(dir, NextEpoch::Next)
    }

    fn open_in(dir: &Path, epoch: NextEpoch) -> Result<Self> {
        let mut options = Options::new(dir);
        options.synchronous = Synchronous::Normal;
        options.readers = 1;
        let engine = Engine::open(options)?;
        engine.start_primary_in("primary", "test", epoch)?;
        Ok(Self {
            session: Some(engine.session()),
            engine,
            runtime: tokio::runtime::Builder::new_current_thread().build()?,
        })
    }

    /// Runs one statement to its end.
    pub fn run(&mut self, sql: &str) -> Result<ResultSet, Error> {
        let session = self.session.as_mut().expect("open until the end");
        self.runtime
            .block_on(session.execute(sql, Params::default(), true))
    }

    /// True between BEGIN and its end.
    pub fn is_in_transaction(&self) -> bool {
        self.session.as_ref().is_some_and(|s| !s.is_autocommit())
    }

    /// Where a follower reads.
    pub fn store(&self) -> &Store {
        self.engine.store()
    }

    /// Writes that left no log row: must stay zero.
    pub fn uncaptured_writes(&self) -> u64 {
        self.engine.stats().uncaptured_writes
    }

    /// Stops it; the files are closed afterwards.
    pub fn stop(mut self) {
        drop(self.session.take());
        self.engine.shutdown();
    }
}
