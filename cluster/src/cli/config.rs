//! `tidegate config`

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use crate::cli::{Exit, Failure, Output};
use crate::config::{Config, KEYS, Low, Problems, default_toml};

/// What to do.
#[derive(Subcommand)]
pub enum ConfigCommand {
    /// Validates a file; exit code 1 when something is wrong
    Check {
        /// The TOML file
        file: PathBuf,
    },
    /// Prints a complete file: every key with its default and meaning
    Default,
}

/// Runs it.
pub fn run(command: &ConfigCommand, output: Output) -> Result<Exit, Failure> {
    match command {
        ConfigCommand::Check { file } => {
            let checked = Low::from_file(file).and_then(|low| Config::resolve(&low));
            Ok(tell(checked.err().unwrap_or_default(), output))
        }
        ConfigCommand::Default => {
            match output {
                Output::Text => print!("{}", default_toml()),
                Output::Json => println!("{}", keys_json()),
            }
            Ok(Exit::Success)
        }
    }
}

fn tell(problems: Problems, output: Output) -> Exit {
    let valid = problems.0.is_empty();
    match output {
        Output::Json => {
            let list: Vec<_> = problems
                .0
                .iter()
                .map(|problem| json!({"place": problem.place, "message": problem.message}))
                .collect();
            println!("{}", json!({"valid": valid, "problems": list}));
        }
        Output::Text if valid => eprintln!("The configuration is valid."),
        Output::Text => eprintln!("{problems}"),
    }
    if valid { Exit::Success } else { Exit::Failure }
}

fn keys_json() -> serde_json::Value {
    KEYS.iter()
        .map(|key| {
            json!({
                "key": key.path,
                "flag": format!("--{}", key.flag),
                "variable": key.variable(),
                "default": key.default,
                "meaning": key.meaning,
            })
        })
        .collect()
}
