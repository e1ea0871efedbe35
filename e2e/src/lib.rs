//! `tidegate-e2e`: drives the built daemon as people do, over real sockets and files.
//!
//! [`Node`] is one `tidegate serve` process; [`Client`] speaks to its listeners. Tests wait
//! for conditions, and a wait that ends without its condition prints what the node says of
//! itself and the end of its log.

pub mod checker;
pub mod client;
pub mod data;
pub mod dump;
pub mod fleet;
pub mod history;
pub mod mixed;
pub mod node;
pub mod pair;
pub mod plant;
pub mod proxy;
pub mod readiness;
pub mod rng;
pub mod served;
pub mod storm;
pub mod stream;
pub mod workload;

pub use client::{Client, Outcome};
pub use data::test_data;
pub use node::{Node, NodeOptions};
pub use pair::Pair;
