//! The command line.
//!
//! Results go to standard output, messages for people to standard error. Exit codes are the
//! same for every command: see [`Exit`].

mod address;
mod check;
mod config;
mod converge;
mod dev;
mod forget;
mod health;
mod import;
mod serve;
mod sql;
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done; for questions, the answer is yes.
    Success = 0,
    /// It failed; for questions, the answer is no (unhealthy, invalid, diverged).
    Failure = 1,
    /// It could not be found out.
    Inconclusive = 2,
    /// Wrong usage or configuration, or nobody answers at the address.
    Usage = 3,
    /// `serve`: the storage failed; check the disk before starting again.
    Fatal = 4,
}

/// A message for people, and the exit code.
#[derive(Debug)]
pub struct Failure {
    /// The code.
    pub exit: Exit,
    /// What went wrong and what to do next.
    pub message: String,
}

/// The form of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Replicated SQL with proof: a storage daemon around the Turso engine.
#[derive(Parser)]
#[command(name = "tidegate", version, after_help = EXIT_CODES)]
struct Cli {
    /// Form of results
    #[arg(long, global = true, value_enum, default_value_t)]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 success, or the answer is yes; 1 failure, or the answer is no; 2 it could not be found
out; 3 wrong usage or configuration, or nobody answers; 4 the storage of `serve` failed; 130 a second
signal cut a shutdown short.";

#[derive(Subcommand)]
enum Command {
    /// Runs a node
    Serve(Box<serve::ServeArgs>),
    /// Runs a primary and a replica on this machine, for trying
    Dev(dev::DevArgs),
    /// Opens a shell, or runs statements
    Sql(sql::SqlArgs),
    /// Shows the cluster at a glance
    Status(status::StatusArgs),
    /// Proves that the replicas hold the same rows, or names what differs
    Converge(converge::ConvergeArgs),
    /// Stops keeping the log for a node that will not come back
    Forget(forget::ForgetArgs),
    /// Asks whether a node is ready; for container health checks
    Health(health::HealthArgs),
    /// Takes over an existing SQLite file, or says why not
    Import(import::ImportArgs),
    /// Tells which statements of a script would be refused, and why
    Check(check::CheckArgs),
    /// Checks a configuration file, or prints every key
    #[command(subcommand)]
    Config(config::ConfigCommand),
}

/// Parses the command line and runs it.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            error.print().ok();
            // --help and --version come as errors too.
            let exit = if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Success
            };
            return exit.into();
        }
    };
    let outcome = match cli.command {
        Command::Serve(args) => serve::run(*args),
        Command::Dev(args) => block_on(dev::run(args)),
        Command::Import(args) => import::run(&args, cli.output),
        Command::Check(args) => check::run(&args, cli.output),
        Command::Config(command) => config::run(&command, cli.output),
        Command::Sql(args) => block_on(sql::run(args, cli.output)),
        Command::Status(args) => block_on(status::run(args, cli.output)),
        Command::Converge(args) => block_on(converge::run(args, cli.output)),
        Command::Forget(args) => block_on(forget::run(args, cli.output)),
        Command::Health(args) => block_on(health::run(args, cli.output)),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("tidegate: {}", failure.message);
            failure.exit.into()
        }
    }
}

impl Failure {
    /// Wrong usage, or nobody answers.
    pub fn usage(message: impl std::fmt::Display) -> Self {
        Self {
            exit: Exit::Usage,
            message: message.to_string(),
        }
    }

    /// It failed.
    pub fn failed(message: impl std::fmt::Display) -> Self {
        Self {
            exit: Exit::Failure,
            message: message.to_string(),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Clients need one thread.
fn block_on<T>(task: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?
        .block_on(task)
}
