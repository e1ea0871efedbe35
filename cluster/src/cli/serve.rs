//! `tidegate serve`

use clap::Args;

use crate::autosize::{Limits, Sizes};
use crate::cli::{Exit, Failure};
use crate::config::ConfigFlags;
use crate::daemon::{self, Error};
use crate::telemetry;

/// The configuration's flags, and how to stop.
#[derive(Args)]
pub struct ServeArgs {
    #[command(flatten)]
    flags: ConfigFlags,
    /// Stops when standard input closes: how `tidegate dev` stops its nodes, and how they notice
    /// that it has died
    #[arg(long, hide = true)]
    until_stdin_closes: bool,
}

/// Runs a node until it is told to stop.
pub fn run(args: ServeArgs) -> Result<Exit, Failure> {
    let (config, warnings) = args.flags.resolve().map_err(Failure::usage)?;
    telemetry::init(&config.log).map_err(Failure::usage)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let workers = Sizes::derive(&config, &Limits::read()).workers.value;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(usize::try_from(workers.clamp(1, 64)).expect("at most 64"))
        .thread_name("tidegate-async")
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let outcome = runtime.block_on(daemon::run(config, args.until_stdin_closes));
    // What is left was given its time; threads that still block end with the process.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => Ok(Exit::Success),
        Err(error) => Err(Failure {
            exit: exit_of(&error),
            message: error.to_string(),
        }),
    }
}

fn exit_of(error: &Error) -> Exit {
    match error {
        Error::Fatal(_) => Exit::Fatal,
        Error::Engine(error) if error.is_fatal() => Exit::Fatal,
        Error::Engine(_) | Error::Task(..) | Error::Signals(_) => Exit::Failure,
        Error::Listen(..) | Error::Unsupported(_) => Exit::Usage,
    }
}
