//! Processes under measurement, and what they use.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// Clock ticks per second in `/proc`; Linux has used 100 for user space on every
/// architecture since it began to hide its own rate.
const TICKS_PER_SECOND: f64 = 100.0;
/// How long a process may take to end by itself.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// A child process; asked to stop, then killed, when dropped.
pub struct Process {
    child: Child,
    name: String,
}

/// What a process has used so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time in seconds.
    pub cpu_seconds: f64,
    /// Resident memory in MiB.
    pub memory_mib: f64,
}

impl Process {
    /// Starts a program of this build, pinned to a core if one is given.
    pub fn start(
        program: &str,
        arguments: &[String],
        core: Option<usize>,
        log: &Path,
    ) -> Result<Self> {
        let program = beside(program)?;
        let mut command = match core {
            Some(core) => {
                let mut command = Command::new("taskset");
                command.args(["-c", &core.to_string()]).arg(&program);
                command
            }
            None => Command::new(&program),
        };
        let log = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        command.args(arguments).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let child = command
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Self {
            child,
            name: program.display().to_string(),
        })
    }

    /// Fails when the process has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended: {status}", self.name),
        }
    }

    /// What it has used so far.
    pub fn usage(&self) -> Result<Usage> {
        usage_of(self.child.id())
    }

    /// Asks it to stop and waits until it has.
    pub fn stop(&mut self) -> Result<()> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status()?;
        let deadline = std::time::Instant::now() + STOP_LIMIT;
        while self.child.try_wait()?.is_none() {
            if std::time::Instant::now() > deadline {
                self.child.kill()?;
                self.child.wait()?;
                bail!("{} did not stop in time", self.name);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

/// Reads `/proc` for a process.
fn usage_of(pid: u32) -> Result<Usage> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold anything; fields are counted from behind it.
    let fields: Vec<_> = stat
        .rsplit_once(')')
        .context("a stat line without a name")?
        .1
        .split_whitespace()
        .collect();
    let ticks = |index: usize| fields.get(index).and_then(|f| f.parse::<f64>().ok());
    let (Some(user), Some(system)) = (ticks(11), ticks(12)) else {
        bail!("unreadable stat line: {stat}");
    };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let resident = status.lines().find_map(|line| {
        let kib = line.strip_prefix("VmRSS:")?.split_whitespace().next()?;
        kib.parse::<f64>().ok()
    });
    Ok(Usage {
        cpu_seconds: (user + system) / TICKS_PER_SECOND,
        memory_mib: resident.unwrap_or(0.0) / 1_024.0,
    })
}

/// A program beside the running one.
fn beside(program: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let path = own.with_file_name(program);
    if !path.is_file() {
        bail!(
            "no {program} beside {}; build the workspace first",
            own.display()
        );
    }
    Ok(path)
}

/// A port that is free now.
pub fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_this_process_is_more_than_nothing() {
        let usage = usage_of(std::process::id()).unwrap();
        assert!(usage.memory_mib > 0.5, "{usage:?}");
    }
}
