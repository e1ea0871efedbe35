//! `tidegate-engine`: SQL, files, capture, the change log, apply and digests.
//!
//! Knows nothing of the network, of peers or of configuration files.

pub mod adapter;
pub mod catalogue;
pub mod change;
pub mod clock;
pub mod ddl;
pub mod digest;
pub mod disk;
pub mod engine;
pub mod error;
pub mod gate;
pub mod integrity;
pub mod logged;
pub mod names;
pub mod options;
pub mod preflight;
pub mod result;
pub mod schema;
pub mod session;
pub mod snapshot;
pub mod staging;
pub mod statement_gate;
pub mod stats;
pub mod store;
pub mod triggers;
pub mod value;
pub mod view;

pub use change::Seq;
pub use engine::Engine;
pub use error::{Error, Result};
pub use options::Options;
pub use result::{Column, Described, Head, Params, ResultSet};
pub use session::Session;
pub use shared::Role;
pub use stats::Stats;
pub use store::Store;
pub use value::{Value, ValueRef};
pub use view::ReadView;
