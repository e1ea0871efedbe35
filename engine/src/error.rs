//! Errors, sorted by what the caller does next.
//!
//! A client sees `code` and the message. The daemon asks [`Error::is_retryable`] (the same
//! request may succeed if sent again) and [`Error::is_fatal`] (durability or integrity can
//! no longer be promised: stop acknowledging and exit).

use thiserror::Error;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, and so what to do about it.
#[derive(Debug, Clone, Error)]
pub enum Error {
    /// The statement is wrong, or a rule of the schema forbids it; only it has failed.
    #[error("{message}")]
    Sql {
        /// SQLite's extended name, `SQLITE_CONSTRAINT_UNIQUE` and so on.
        code: &'static str,
        /// The engine's own words.
        message: String,
    },
    /// Tidegate does not run this statement. The message says why and what to do instead.
    #[error("{message}")]
    Refused {
        /// A short, stable word for metrics and docs, `update_or_replace` and so on.
        reason: &'static str,
        /// One sentence for a person.
        message: String,
    },
    /// Another writer holds the engine's lock. Never reaches a client.
    #[error("the database is busy")]
    Busy,
    /// The transaction's snapshot is older than another commit: roll back and run it again.
    #[error("the snapshot of this transaction is stale: roll back and run it again")]
    StaleSnapshot,
    /// The statement was interrupted, by its time limit or because its client went away.
    #[error("the statement was interrupted")]
    Interrupted,
    /// The statement failed in a way that rolled its whole transaction back.
    #[error("{message} (the whole transaction was rolled back)")]
    TransactionGone {
        /// SQLite's name for the cause.
        code: &'static str,
        /// The engine's own words.
        message: String,
    },
    /// An open transaction was idle, or open, for longer than allowed; it was rolled back.
    #[error("the transaction was rolled back: {0}")]
    TransactionTimeout(String),
    /// A queue is full. Nothing was executed.
    #[error("overloaded: {0}")]
    Overloaded(String),
    /// A limit on size was passed.
    #[error("{0}")]
    TooLarge(String),
    /// This node does not take writes.
    #[error("{0}")]
    ReadOnly(String),
    /// This node must not take writes any more: another one leads, or claims to. Nothing was
    /// committed.
    #[error("{0}")]
    Fenced(String),
    /// The commit may or may not have happened, or is not yet as safe as asked for.
    #[error("indeterminate: {0}")]
    Indeterminate(String),
    /// No space left on the device. Reads go on; writes work again when space is freed.
    #[error("no space left: {0}")]
    NoSpace(String),
    /// Reading or writing failed.
    #[error("I/O error: {0}")]
    Io(String),
    /// The file is not a healthy database.
    #[error("corrupt database: {0}")]
    Corrupt(String),
    /// The engine panicked. The connection is retired.
    #[error("the engine panicked: {0}")]
    Panicked(String),
    /// Applying would make this copy differ from its source, or shows that it already does.
    #[error("cannot apply: {0}")]
    Diverging(String),
    /// Bytes of the log, a batch or a file are not what this version writes.
    #[error("format: {0}")]
    Format(String),
    /// The position asked for is no longer in the log, or was never on this history.
    #[error("snapshot required: {0}")]
    SnapshotRequired(String),
    /// Durability failed or is unknown. The process must stop.
    #[error("fatal: {0}")]
    Fatal(String),
    /// The engine of this node is closing.
    #[error("the node is shutting down")]
    Closed,
}

impl Error {
    /// The code that clients see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Sql { code, .. } | Self::TransactionGone { code, .. } => code,
            Self::Refused { .. } => "TIDEGATE_REFUSED",
            Self::Busy => "SQLITE_BUSY",
            Self::StaleSnapshot => "SQLITE_BUSY_SNAPSHOT",
            Self::Interrupted => "SQLITE_INTERRUPT",
            Self::TransactionTimeout(_) => "TIDEGATE_TXN_TIMEOUT",
            Self::Overloaded(_) => "TIDEGATE_OVERLOADED",
            Self::TooLarge(_) => "TIDEGATE_TOO_LARGE",
            Self::ReadOnly(_) => "TIDEGATE_READ_ONLY",
            Self::Fenced(_) => "TIDEGATE_FENCED",
            Self::Indeterminate(_) => "TIDEGATE_INDETERMINATE",
            Self::NoSpace(_) => "SQLITE_FULL",
            Self::Io(_) | Self::Fatal(_) => "SQLITE_IOERR",
            Self::Corrupt(_) => "SQLITE_CORRUPT",
            Self::Panicked(_) | Self::Diverging(_) | Self::Format(_) => "SQLITE_INTERNAL",
            Self::SnapshotRequired(_) | Self::Closed => "TIDEGATE_NOT_READY",
        }
    }

    /// True when sending the same request again may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Busy | Self::StaleSnapshot | Self::Overloaded(_) | Self::Closed => true,
            Self::TransactionTimeout(_) | Self::NoSpace(_) => true,
            Self::Sql { .. }
            | Self::Refused { .. }
            | Self::Interrupted
            | Self::TransactionGone { .. }
            | Self::TooLarge(_)
            | Self::ReadOnly(_)
            | Self::Fenced(_)
            | Self::Indeterminate(_)
            | Self::Io(_)
            | Self::Corrupt(_)
            | Self::Panicked(_)
            | Self::Diverging(_)
            | Self::Format(_)
            | Self::SnapshotRequired(_)
            | Self::Fatal(_) => false,
        }
    }

    /// True when the schema changed between a snapshot and a statement that was to run in it,
    /// which the engine compiles against the newest schema. Begin a new snapshot.
    pub fn is_schema_change(&self) -> bool {
        self.code() == "SQLITE_SCHEMA"
    }

    /// True when this process must stop acknowledging and exit.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Fatal(_))
    }

    /// A refusal with its stable reason.
    pub fn refused(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Refused {
            reason,
            message: message.into(),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::NoSpace(error.to_string())
            }
            _ => Self::Io(error.to_string()),
        }
    }
}
