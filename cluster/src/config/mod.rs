//! Configuration, in two forms.
//!
//! [`Low`] is what was typed: a TOML file, overridden by `TIDEGATE_…` variables, overridden
//! by flags; each value still remembers where it came from. [`Config`] is what the daemon
//! works with: every key present, parsed, checked against the others. Only [`Config`] leaves
//! this module.
//!
//! Both are driven by one table, [`keys::KEYS`], which also makes the flags, `tidegate config
//! default` and `docs/configuration.md`. A key cannot exist without a default and a meaning,
//! and its flag, variable and file name cannot drift apart.
//!
//! A key the file holds and the table does not is an error that names the nearest known one.
//! An unknown `TIDEGATE_` variable is only warned of: Kubernetes sets `TIDEGATE_PORT` and
//! `TIDEGATE_SERVICE_HOST` in every pod beside a service of that name.

mod flags;
mod high;
pub mod keys;
mod low;
mod print;
mod units;

pub use flags::ConfigFlags;
pub use high::{
    ClusterConfig, Config, HttpConfig, ListenConfig, LogConfig, LogFormat, Mode, NodeConfig,
    RoleSetting, SqlConfig, Synchronous,
};
pub use keys::{KEYS, Key, Kind, Scope};
pub use low::{Low, Origin, Typed};
pub use print::{default_toml, markdown};

use std::fmt;

/// Something wrong with the configuration. All of them are reported at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where: a key with its origin, or a file.
    pub place: String,
    /// What, and what to do about it.
    pub message: String,
}

/// Every problem found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems(pub Vec<Problem>);

impl Problem {
    fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
