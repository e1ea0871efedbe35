//! `tidegate-replica`: how one node feeds another.
//!
//! A **source** reads batches from its log and sends them; a **sink** applies them. Both
//! sides begin with their histories, and a convergence pass proves that they hold the same
//! rows. What decides is pure and takes the time as an argument; what reads, sends and waits
//! decides nothing.
//!
//! | room | what |
//! |---|---|
//! | [`ids`], [`history`] | who is who, and who may follow whom |
//! | [`intake`], [`progress`], [`window`], [`lag`], [`backoff`] | the stream's rules |
//! | [`check`], [`pass`], [`coverage`], [`proof`] | the convergence gate's rules |
//! | [`wire`] | checked messages |
//! | [`service`], [`greeting`], [`source`], [`asking`], [`transfer`], [`followers`] | feeding |
//! | [`retention`], [`slots`], [`trimmer`] | keeping as much of the log as followers need |
//! | [`follower`], [`sink`], [`applying`], [`comparing`], [`mount`], [`dial`], [`state`] | following |
//! | [`parts`], [`session_service`], [`remote_session`] | clients' sessions, forwarded |
//!
//! There is no membership here, no lease, no HTTP and no configuration file.

pub mod applying;
pub mod asking;
pub mod backoff;
pub mod check;
pub mod comparing;
pub mod coverage;
pub mod dial;
pub mod error;
pub mod follower;
pub mod followers;
pub mod greeting;
pub mod history;
pub mod ids;
pub mod intake;
pub mod lag;
pub mod mount;
pub mod objects;
pub mod parts;
pub mod pass;
pub mod progress;
pub mod proof;
pub mod remote_session;
pub mod retention;
pub mod service;
pub mod session_service;
pub mod settings;
pub mod sink;
pub mod slots;
pub mod source;
pub mod standing;
pub mod state;
pub mod transfer;
pub mod trimmer;
pub mod window;
pub mod wire;

pub use error::{Error, Result};
