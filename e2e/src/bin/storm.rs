//! The long storm: `cargo run --release -p tidegate-e2e --bin storm -- --statements 200000`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use tidegate_e2e::storm::{self, Options};

/// Two nodes, many clients, kill -9 in the middle of it all, and a verdict.
#[derive(Parser)]
struct Arguments {
    /// Statements in all.
    #[arg(long, default_value_t = 200_000)]
    statements: u64,
    /// Clients at the same time.
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// Kills of each node.
    #[arg(long, default_value_t = 5)]
    kills: usize,
    /// Fewest requests unanswered when a node is killed.
    #[arg(long, default_value_t = 8)]
    unanswered: usize,
    /// What all choices are made from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One node or two.
    #[arg(long, default_value_t = 2)]
    nodes: usize,
    /// Write through the primary only.
    #[arg(long)]
    primary_only: bool,
    /// Keep data and logs in this directory.
    #[arg(long)]
    keep_in: Option<PathBuf>,
    /// Limit for the load, in seconds.
    #[arg(long, default_value_t = 1_800)]
    load_seconds_max: u64,
    /// Limit for a node to become ready, in seconds.
    #[arg(long, default_value_t = 60)]
    ready_seconds_max: u64,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let report = storm::run(Options {
        statements: arguments.statements,
        clients: arguments.clients,
        kills: arguments.kills,
        unanswered: arguments.unanswered,
        seed: arguments.seed,
        nodes: arguments.nodes,
        writes_everywhere: !arguments.primary_only,
        load_limit: Duration::from_secs(arguments.load_seconds_max),
        ready_limit: Duration::from_secs(arguments.ready_seconds_max),
        keep_in: arguments.keep_in,
        ..Options::default()
    })
    .await?;
    println!("{report}");
    Ok(if report.passed() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
