//! `tidegate`: the daemon and its commands.
//!
//! Composes the other crates: who is who, may this node serve, and the doors for clients
//! and operators. It alone reads configuration, environment and signals.

pub mod admin;
pub mod autosize;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod duty;
pub mod forward;
pub mod front;
pub mod health;
pub mod metrics;
mod monitor;
pub mod mounted;
pub mod readiness;
pub mod role;
pub mod status;
pub mod tasks;
pub mod telemetry;
