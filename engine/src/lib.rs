//! `tidegate-engine`: SQL, files, capture, the change log, apply and digests.
//!
//! Knows nothing of the network, of peers or of configuration files.

pub mod adapter;
pub mod apply;
pub mod batch;
pub mod batch_reader;
pub mod catalogue;
pub mod change;
pub mod clock;
pub mod codec;
pub mod ddl;
pub mod digest;
pub mod disk;
pub mod engine;
pub mod error;
pub mod finals;
pub mod gate;
pub mod high_water;
pub mod integrity;
pub mod log;
pub mod logged;
pub mod meta;
pub mod names;
pub mod openings;
pub mod options;
pub mod plan;
pub mod preflight;
pub mod result;
pub mod schema;
pub mod session;
pub mod shape;
pub mod snapshot;
pub mod spool;
pub mod staging;
pub mod statement_gate;
pub mod stats;
pub mod store;
#[doc(hidden)]
pub mod testing;
pub mod triggers;
pub mod trim;
pub mod value;
pub mod view;

pub use apply::{Applied, Applier};
pub use batch::Batch;
pub use batch_reader::BatchLimits;
pub use change::Seq;
pub use engine::Engine;
pub use error::{Error, Result};
pub use finals::FinalsKnown;
pub use openings::Opening;
pub use options::Options;
pub use result::{Column, Described, Head, Params, ResultSet};
pub use session::Session;
pub use shared::Role;
pub use spool::Spool;
pub use stats::Stats;
pub use store::Store;
pub use value::{Value, ValueRef};
pub use view::ReadView;
