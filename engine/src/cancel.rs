//! Stopping a statement whose answer nobody waits for any more.
//!
//! A statement has one [`Cancel`], shared by the session that waits and the thread that
//! runs it. The thread tells when the engine starts and ends; an interrupt is only sent
//! between the two, under the same lock, so it can never hit the statement that comes next
//! on that connection (a COMMIT, say).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::adapter::InterruptHandle;

/// Why a statement was stopped from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Its client went away.
    ClientGone,
    /// It kept the write-ahead log from being checkpointed.
    Checkpoint,
    /// The node closes.
    Closing,
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Cancel {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: Option<InterruptHandle>,
    reason: Option<Reason>,
}

/// Cancels when dropped, unless told that the answer has arrived.
pub(crate) struct CancelOnDrop {
    cancel: Arc<Cancel>,
    armed: bool,
}

impl Cancel {
    /// The engine is about to run the statement. False when it was cancelled before.
    pub(crate) fn start(&self, handle: InterruptHandle) -> bool {
        let mut state = self.lock();
        state.running = Some(handle);
        state.reason.is_none()
    }

    /// The engine is done with the statement. Tells why it was stopped, if it was.
    pub(crate) fn finish(&self) -> Option<Reason> {
        let mut state = self.lock();
        state.running = None;
        state.reason
    }

    /// Stops the statement, now or before it starts. Who only wanted it out of the way of a
    /// checkpoint gives way to one who wants it gone.
    pub(crate) fn cancel(&self, reason: Reason) {
        let mut state = self.lock();
        if matches!(state.reason, None | Some(Reason::Checkpoint)) {
            state.reason = Some(reason);
        }
        if let Some(handle) = &state.running {
            handle.interrupt();
        }
    }

    /// Lets a statement that was only in the way of a checkpoint run once more. False when
    /// it was stopped for another reason, or not at all.
    pub(crate) fn pardon(&self) -> bool {
        let mut state = self.lock();
        let pardoned = state.reason == Some(Reason::Checkpoint);
        if pardoned {
            state.reason = None;
        }
        pardoned
    }

    /// True once somebody wanted it stopped.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.lock().reason.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CancelOnDrop {
    /// Guards a wait for the statement's answer.
    pub(crate) fn new(cancel: Arc<Cancel>) -> Self {
        Self {
            cancel,
            armed: true,
        }
    }

    /// The answer has arrived.
    pub(crate) fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if self.armed {
            self.cancel.cancel(Reason::ClientGone);
        }
    }
}
