//! COMMIT, and what its failures mean.
//!
//! A COMMIT that a deferred foreign key refuses has not happened and leaves the transaction
//! open. Any other failure leaves open whether it happened, so it is never run again; and
//! when the disk failed (an fsync that reported an error, or a panic on the way), nothing on
//! this node may be acknowledged any more.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::adapter::Connection;
use crate::change::Seq;
use crate::error::Error;
use crate::logged::{self, Ledger};
use crate::shared::Shared;

/// Why a transaction was not committed.
#[derive(Debug, Clone)]
pub(crate) enum CommitFailure {
    /// A deferred foreign key is violated. Nothing happened; the transaction is still open.
    ForeignKey(Error),
    /// The engine did not log what it changed. The transaction must be rolled back.
    Uncaptured(Error),
    /// This node must not acknowledge anything any more. The transaction must be rolled back.
    NotTried(Error),
    /// The device is full. Nothing happened; the transaction must be rolled back.
    NoSpace(Error),
    /// Nobody knows whether it happened.
    Unknown(Error),
}

impl CommitFailure {
    /// The error for a client.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::ForeignKey(error)
            | Self::Uncaptured(error)
            | Self::NotTried(error)
            | Self::NoSpace(error)
            | Self::Unknown(error) => error,
        }
    }
}

/// Seals and commits the open transaction, announces its position and returns it.
pub(crate) fn commit(
    connection: &mut Connection,
    ledger: Ledger,
    shared: &Shared,
) -> Result<Seq, CommitFailure> {
    if let Some(why) = shared.fatal.borrow().as_ref() {
        return Err(CommitFailure::NotTried(Error::Fatal(why.clone())));
    }
    shared.check_fence().map_err(CommitFailure::NotTried)?;
    let sealed = ledger
        .seal(connection)
        .map_err(|error| sort_seal_failure(error, shared))?;
    let started = Instant::now();
    if let Err(error) = connection.execute("COMMIT", &[]) {
        return Err(sort_failure(connection, error, sealed.before, shared));
    }
    shared
        .counters
        .commit_seconds
        .observe_time(started.elapsed());
    // The engine's own record of the commit moves the head once more, so it is read now.
    match logged::head(connection) {
        Ok(head) => {
            shared.publish(head);
            Ok(head)
        }
        Err(error) => Err(CommitFailure::Unknown(Error::Indeterminate(format!(
            "committed, but its position cannot be read: {error}"
        )))),
    }
}

fn sort_seal_failure(error: Error, shared: &Shared) -> CommitFailure {
    match error {
        Error::Fatal(message) => {
            shared
                .counters
                .uncaptured_writes
                .fetch_add(1, Ordering::Relaxed);
            tracing::error!(%message, "a write was not captured and is rolled back");
            CommitFailure::Uncaptured(Error::refused(
                "uncaptured",
                format!("{message}; it was rolled back, because no replica would ever see it"),
            ))
        }
        Error::NoSpace(_) => CommitFailure::NoSpace(error),
        // Before COMMIT nothing is durable, so the caller's rollback settles it.
        other => CommitFailure::Uncaptured(other),
    }
}

fn sort_failure(
    connection: &mut Connection,
    error: Error,
    before: Seq,
    shared: &Shared,
) -> CommitFailure {
    match error {
        Error::Sql {
            code: "SQLITE_CONSTRAINT_FOREIGNKEY",
            ..
        } => CommitFailure::ForeignKey(error),
        Error::NoSpace(message) if is_undone(connection, before) => {
            CommitFailure::NoSpace(Error::NoSpace(message))
        }
        Error::Io(message) | Error::Panicked(message) | Error::NoSpace(message) => {
            shared.fail(format!("COMMIT failed: {message}"));
            CommitFailure::Unknown(indeterminate(&message))
        }
        other => CommitFailure::Unknown(indeterminate(&other.to_string())),
    }
}

fn indeterminate(message: &str) -> Error {
    Error::Indeterminate(format!(
        "COMMIT failed, and whether it took effect is not known: {message}"
    ))
}

/// After a COMMIT that found no room: true when the transaction is provably not there.
fn is_undone(connection: &mut Connection, before: Seq) -> bool {
    if !connection.is_autocommit() && connection.execute("ROLLBACK", &[]).is_err() {
        return false;
    }
    logged::head(connection).is_ok_and(|head| head == before)
}
