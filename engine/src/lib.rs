//! `tidegate-engine`: SQL, files, capture, the change log, apply and digests.
//!
//! Knows nothing of the network, of peers or of configuration files.

pub mod adapter;
mod cancel;
pub mod catalogue;
pub mod change;
mod checkpoint;
pub mod clock;
mod commit;
pub mod digest;
pub mod disk;
pub mod engine;
pub mod error;
mod facts;
pub mod gate;
mod group;
pub mod integrity;
mod interim;
pub mod names;
pub mod options;
pub mod preflight;
mod queue;
mod reader;
pub mod result;
pub mod schema;
pub mod session;
mod shared;
pub mod snapshot;
pub mod staging;
mod statement;
pub mod statement_gate;
pub mod stats;
pub mod store;
mod transaction;
pub mod triggers;
pub mod value;
pub mod view;
mod write;
mod writer;

pub use change::Seq;
pub use engine::Engine;
pub use error::{Error, Result};
use interim::logged;
pub use options::Options;
pub use result::{Column, Described, Head, Params, ResultSet};
pub use session::Session;
pub use shared::Role;
pub use stats::Stats;
pub use store::Store;
pub use value::{Value, ValueRef};
pub use view::ReadView;
