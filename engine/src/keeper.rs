//! Keeps the high-water mark while the engine is open.
//!
//! A thread of its own writes the file, at most once a second, so that no commit ever waits
//! for it; the last position is written when the engine closes.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::shared::Shared;

/// How often the mark is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// The thread; dropping it stops and joins it.
pub(crate) struct Keeper {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread.
    pub(crate) fn spawn(shared: &Arc<Shared>) -> Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let shared = shared.clone();
        let thread = thread::Builder::new()
            .name("high-water".into())
            .spawn(move || {
                // Nothing is ever sent: the channel closes when the engine does.
                while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    keep(&shared, false);
                }
                keep(&shared, true);
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn keep(shared: &Shared, last: bool) {
    let head = shared.head.borrow().seq;
    let mut mark = shared
        .high_water
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let kept = mark.reach(head, Instant::now());
    let kept = if last { kept.and(mark.flush()) } else { kept };
    if let Err(error) = kept {
        tracing::warn!(%error, "the high-water mark could not be written");
    }
}
