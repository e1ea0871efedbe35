//! `tidegate-engine`: SQL, files, capture, the change log, apply and digests.
//!
//! Knows nothing of the network, of peers or of configuration files.

pub mod adapter;
pub mod catalogue;
pub mod change;
pub mod digest;
pub mod disk;
pub mod error;
pub mod gate;
pub mod integrity;
pub mod names;
pub mod preflight;
pub mod schema;
pub mod snapshot;
pub mod staging;
pub mod statement_gate;
pub mod store;
pub mod triggers;
pub mod value;
pub mod view;

pub use change::Seq;
pub use error::{Error, Result};
pub use store::Store;
pub use value::{Value, ValueRef};
pub use view::ReadView;
