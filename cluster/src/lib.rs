//! `tidegate`: the daemon and its commands.
//!
//! Composes the other crates: who is who, may this node serve, and the doors for clients
//! and operators. It alone reads configuration, environment and signals.

pub mod admin;
pub mod autosize;
mod blocking;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod duty;
pub mod forward;
pub mod front;
pub mod health;
pub mod identity;
pub mod meeting;
pub mod metrics;
mod monitor;
pub mod mounted;
mod options;
pub mod peers;
pub mod readiness;
pub mod role;
pub mod roles;
mod signals;
pub mod status;
pub mod tasks;
pub mod telemetry;
