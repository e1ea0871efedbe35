//! `tidegate-replica`: how one node feeds another.

pub mod backoff;
pub mod error;
pub mod history;
pub mod ids;
pub mod intake;
pub mod lag;
pub mod progress;
pub mod window;

pub use error::{Error, Result};
