//! The engine of this node, as everybody but its owner sees it.
//!
//! A replica's engine is closed and opened again when a snapshot takes the file's place, so
//! nobody keeps it: it is fetched for each use, and its absence is an ordinary state.

use std::sync::Arc;

use tidegate_engine::Engine;
use tokio::sync::watch;

/// Where the open engine is found.
#[derive(Clone)]
pub struct EngineSlot {
    current: watch::Receiver<Option<Arc<Engine>>>,
}

impl EngineSlot {
    /// Reads what the owner shows.
    pub fn new(current: watch::Receiver<Option<Arc<Engine>>>) -> Self {
        Self { current }
    }

    /// The open engine. Do not keep it.
    pub fn get(&self) -> Option<Arc<Engine>> {
        self.current.borrow().clone()
    }

    /// Waits until the engine is taken away. Does not hold it.
    pub async fn closed(&mut self) {
        // Not an error of its own: the owner is gone at the end of the process only.
        let ended = self.current.wait_for(Option::is_none).await.is_err();
        if ended {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until an engine is open, and gives its watch for fatal faults.
    pub async fn fatal(&mut self) -> watch::Receiver<Option<String>> {
        let found = match self.current.wait_for(Option::is_some).await {
            Ok(engine) => engine.as_ref().map(|engine| engine.fatal()),
            Err(_) => None,
        };
        match found {
            Some(fatal) => fatal,
            None => std::future::pending().await,
        }
    }
}
