//! `tidegate`: the daemon and its commands.
//!
//! Composes the other crates: who is who, may this node serve, and the doors for clients
//! and operators. It alone reads configuration, environment and signals.

pub mod autosize;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod front;
pub mod health;
pub mod metrics;
mod monitor;
pub mod readiness;
pub mod status;
pub mod tasks;
pub mod telemetry;
