//! Logs: text on a terminal, JSON otherwise, always on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::config::{LogConfig, LogFormat};

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter does not parse.
    #[error("log.level: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// Somebody installed another one before.
    #[error("logging: {0}")]
    Init(#[from] TryInitError),
}

/// Installs the process's log output. Call it once, from main.
pub fn init(config: &LogConfig) -> Result<(), Error> {
    let filter = EnvFilter::try_new(&config.level)?;
    let terminal = std::io::stderr().is_terminal();
    let json = match config.format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    if json {
        let layer = layer.json().flatten_event(true).with_current_span(false);
        registry.with(layer.with_span_list(false)).try_init()?;
    } else {
        let layer = layer.with_ansi(terminal).with_target(false).compact();
        registry.with(layer).try_init()?;
    }
    Ok(())
}
