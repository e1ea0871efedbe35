//! The flags of `tidegate serve`, made from the table of keys.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::keys::{KEYS, Kind};
use super::low::{Low, Origin};
use super::{Config, Problems};

/// Everything the command line says about the configuration.
#[derive(Debug, Clone, Default)]
pub struct ConfigFlags {
    /// `--config`.
    pub file: Option<PathBuf>,
    /// The other flags.
    pub low: Low,
}

impl ConfigFlags {
    /// Reads the file and the environment as well, and resolves everything. The second value
    /// holds warnings.
    pub fn resolve(self) -> Result<(Config, Vec<String>), Problems> {
        let file = match &self.file {
            Some(path) => Low::from_file(path)?,
            None => Low::default(),
        };
        let (variables, unknown) = Low::from_variables(std::env::vars());
        let config = Config::resolve(&file.overridden_by(variables).overridden_by(self.low))?;
        let warnings = unknown
            .into_iter()
            .map(|name| format!("unknown variable {name}"))
            .collect();
        Ok((config, warnings))
    }
}

impl FromArgMatches for ConfigFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut low = Low::default();
        let typed = |flag| matches.value_source(flag) == Some(ValueSource::CommandLine);
        for key in KEYS.iter().filter(|key| typed(key.flag)) {
            let texts = matches.get_many::<String>(key.flag).into_iter().flatten();
            low.set(
                key,
                texts.cloned().collect(),
                Origin::Flag(key.flag.to_owned()),
            );
        }
        Ok(Self {
            file: matches.get_one::<PathBuf>("config").cloned(),
            low,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ConfigFlags {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .env("TIDEGATE_CONFIG")
            .value_parser(clap::value_parser!(PathBuf))
            .help("TOML file with the configuration");
        KEYS.iter().fold(command.arg(config), |command, key| {
            let arg = Arg::new(key.flag)
                .long(key.flag)
                .value_name(value_name(key.kind))
                .help(key.meaning);
            command.arg(match key.kind {
                Kind::List => arg.action(ArgAction::Append),
                Kind::Flag => arg.num_args(0..=1).default_missing_value("true"),
                _ => arg,
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn value_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "TEXT",
        Kind::Flag => "BOOL",
        Kind::Count => "N",
        Kind::AutoCount => "N|auto",
        Kind::Bytes => "SIZE",
        Kind::AutoBytes => "SIZE|auto",
        Kind::Duration => "DURATION",
        Kind::Address => "HOST:PORT",
        Kind::Path => "PATH",
        Kind::List => "ID=URL",
        Kind::Choice(_) => "WORD",
    }
}
