//! The load program. `tidegate-bench run --port 8080 --shape insert --clients 16` measures a
//! running node; `tidegate-bench suite` starts all lanes itself and writes `RESULTS.md`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use tidegate_bench::http::Connection;
use tidegate_bench::load::{self, Plan};
use tidegate_bench::shape::{self, Shape};
use tidegate_bench::{lag, results, suite};

#[derive(Parser)]
#[command(about = "Measures nodes over HTTP; prints JSON")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Makes the tables and the rows that reads choose from.
    Prepare {
        /// Port of the client listener.
        #[arg(long)]
        port: u16,
    },
    /// Puts a node under load.
    Run {
        /// Port of the client listener.
        #[arg(long)]
        port: u16,
        /// What is asked.
        #[arg(long, value_enum)]
        shape: Shape,
        /// Clients, each with a connection of its own.
        #[arg(long, default_value_t = 16)]
        clients: u64,
        /// Length of the measured part.
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
        /// Requests per second over all clients (open loop).
        #[arg(long)]
        rate: Option<f64>,
        /// Number of the run; rows carry it.
        #[arg(long, default_value_t = 1)]
        run: u64,
    },
    /// Counts the rows of a run.
    Verify {
        /// Port of the client listener.
        #[arg(long)]
        port: u16,
        /// Number of the run.
        #[arg(long, default_value_t = 1)]
        run: u64,
        /// How many rows there must be.
        #[arg(long)]
        rows: u64,
    },
    /// Measures how long commits take to show on the replica.
    Lag {
        /// Client port of the primary.
        #[arg(long)]
        primary: u16,
        /// Client port of the replica.
        #[arg(long)]
        replica: u16,
        /// For how long.
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
    },
    /// Runs all lanes and writes the results.
    Suite {
        /// Where results go.
        #[arg(long, default_value = "bench")]
        out: PathBuf,
        /// Rounds; figures are medians over them.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Length of each measurement.
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
        /// Length of the idle part.
        #[arg(long, default_value_t = 60.0)]
        idle_seconds: f64,
        /// Rows that the convergence pass compares.
        #[arg(long, default_value_t = 2_000_000)]
        pass_rows: u64,
        /// Where data goes.
        #[arg(long, default_value = "target/bench-data")]
        data_dir: PathBuf,
        /// A directory in memory.
        #[arg(long, default_value = "/dev/shm")]
        memory_dir: PathBuf,
    },
    /// Writes `RESULTS.md` and the charts again from `results.json`.
    Report {
        /// Where the results are.
        #[arg(long, default_value = "bench")]
        out: PathBuf,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Prepare { port } => shape::prepare(&mut Connection::open(port).await?).await,
        Command::Run {
            port,
            shape,
            clients,
            seconds,
            rate,
            run,
        } => {
            let plan = Plan {
                port,
                shape,
                clients,
                seconds,
                warmup_seconds: 0.5,
                rate,
                run,
            };
            print(&load::run(plan).await?)
        }
        Command::Verify { port, run, rows } => {
            let stored = shape::stored_rows(&mut Connection::open(port).await?, run).await?;
            ensure!(stored == rows, "{stored} rows are stored, not {rows}");
            Ok(())
        }
        Command::Lag {
            primary,
            replica,
            seconds,
        } => {
            lag::prepare(primary).await?;
            print(&lag::probe(primary, replica, seconds, Duration::from_millis(5)).await?)
        }
        Command::Suite {
            out,
            rounds,
            seconds,
            idle_seconds,
            pass_rows,
            data_dir,
            memory_dir,
        } => {
            let options = suite::Options {
                rounds,
                seconds,
                idle_seconds,
                pass_rows,
                data_dir,
                memory_dir,
            };
            results::write(&suite::run(&options).await?, &out)
        }
        Command::Report { out } => {
            let text = std::fs::read_to_string(out.join("results.json"))?;
            results::write(&serde_json::from_str(&text)?, &out)
        }
    }
}

fn print(value: &impl serde::Serialize) -> Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}
