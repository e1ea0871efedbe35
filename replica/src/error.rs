//! Errors, sorted by what happens to the stream.

use thiserror::Error;
use tidegate_engine::Error as EngineError;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a stream ended, or cannot begin.
#[derive(Debug, Clone, Error)]
pub enum Error {
    /// The other side said something it must not say: end the stream, count it, dial again.
    #[error("the peer broke the protocol: {0}")]
    Protocol(String),
    /// A value does not have the form it must have.
    #[error("{field} {problem}")]
    Invalid {
        /// Where it was found.
        field: &'static str,
        /// What is wrong with it, continuing the field's name to a sentence.
        problem: String,
    },
    /// The connection is gone, silent, or never came about: dial again.
    #[error("network: {0}")]
    Network(String),
    /// The engine of this node failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl Error {
    /// True when a view was spoiled by a change of the schema; another one will do.
    pub fn is_schema_change(&self) -> bool {
        matches!(self, Self::Engine(error) if error.is_schema_change())
    }

    /// A value that does not have the form it must have.
    pub fn invalid(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid {
            field,
            problem: problem.into(),
        }
    }

    /// The other side broke the protocol.
    pub fn protocol(text: impl Into<String>) -> Self {
        Self::Protocol(text.into())
    }

    /// The connection is gone.
    pub fn network(text: impl std::fmt::Display) -> Self {
        Self::Network(text.to_string())
    }
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        Self::Network(format!("{:?}: {}", status.code(), status.message()))
    }
}
