//! Lanes: what can be put under the same load.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::http::Connection;
use crate::process::{Process, Usage, free_port};

/// How long a lane may take to be ready.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// The kinds of lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneKind {
    /// A primary alone.
    Single,
    /// A primary with a replica attached.
    Pair,
    /// C SQLite (WAL, FULL), a connection for each client, behind the same HTTP shape.
    Sqlite,
}

/// Where processes run and where files go.
#[derive(Debug, Clone, Default)]
pub struct Placement {
    /// Core of the process that takes the load; unpinned if none.
    pub primary_core: Option<usize>,
    /// Core of the replica.
    pub replica_core: Option<usize>,
    /// Directory of the replica's files; beside the primary's if none.
    pub replica_dir: Option<PathBuf>,
}

/// A running lane.
pub struct Lane {
    /// Its kind.
    pub kind: LaneKind,
    /// Port that takes the load.
    pub port: u16,
    /// Client port of the replica.
    pub replica_port: Option<u16>,
    /// Health ports of the nodes, the primary's first.
    pub health_ports: Vec<u16>,
    processes: Vec<Process>,
    directories: Vec<tempfile::TempDir>,
}

impl LaneKind {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "tidegate, one node",
            Self::Pair => "tidegate, primary and replica",
            Self::Sqlite => "SQLite (WAL, FULL) behind HTTP",
        }
    }
}

impl Lane {
    /// Starts a lane in a fresh directory under `base` and waits until it is ready.
    pub async fn start(kind: LaneKind, base: &Path, placement: &Placement) -> Result<Self> {
        let mut lane = Self {
            kind,
            port: 0,
            replica_port: None,
            health_ports: Vec::new(),
            processes: Vec::new(),
            directories: Vec::new(),
        };
        match kind {
            LaneKind::Sqlite => lane.start_sqlite(base, placement).await?,
            LaneKind::Single => {
                lane.start_node("n1", None, base, placement.primary_core)
                    .await?;
            }
            LaneKind::Pair => lane.start_pair(base, placement).await?,
        }
        Ok(lane)
    }

    /// What each process has used, the loaded one first.
    pub fn usage(&self) -> Result<Vec<Usage>> {
        self.processes.iter().map(Process::usage).collect()
    }

    /// Ends its processes, the replica first.
    pub fn stop(mut self) -> Result<()> {
        for process in self.processes.iter_mut().rev() {
            process.stop()?;
        }
        Ok(())
    }

    async fn start_pair(&mut self, base: &Path, placement: &Placement) -> Result<()> {
        let peer = self
            .start_node("n1", None, base, placement.primary_core)
            .await?;
        let directory = placement.replica_dir.as_deref().unwrap_or(base);
        self.start_node("n2", Some(peer), directory, placement.replica_core)
            .await?;
        Ok(())
    }

    /// Starts a node, a primary unless it has one to follow. Returns its peer port.
    async fn start_node(
        &mut self,
        id: &str,
        primary: Option<u16>,
        base: &Path,
        core: Option<usize>,
    ) -> Result<u16> {
        let directory = tempfile::tempdir_in(base)?;
        let [client, peer, health] = [free_port()?, free_port()?, free_port()?];
        let address = |port| format!("127.0.0.1:{port}");
        let data = directory.path().join(id).display().to_string();
        let role = if primary.is_some() {
            "replica"
        } else {
            "primary"
        };
        let mut arguments: Vec<String> = [
            "serve",
            "--node-id",
            id,
            "--data-dir",
            &data,
            "--role",
            role,
        ]
        .map(str::to_owned)
        .into();
        for (flag, port) in [
            ("--client-addr", client),
            ("--peer-addr", peer),
            ("--health-addr", health),
        ] {
            arguments.extend([flag.to_owned(), address(port)]);
        }
        if let Some(primary) = primary {
            arguments.extend([
                "--primary".to_owned(),
                format!("http://{}", address(primary)),
            ]);
        }
        let log = directory.path().join("log");
        self.processes
            .push(Process::start("tidegate", &arguments, core, &log)?);
        self.directories.push(directory);
        self.health_ports.push(health);
        if primary.is_some() {
            self.replica_port = Some(client);
        } else {
            self.port = client;
        }
        self.wait_for(health, "/readyz").await?;
        Ok(peer)
    }

    async fn start_sqlite(&mut self, base: &Path, placement: &Placement) -> Result<()> {
        let directory = tempfile::tempdir_in(base)?;
        self.port = free_port()?;
        let file = directory.path().join("sqlite.db").display().to_string();
        let arguments = [format!("127.0.0.1:{}", self.port), file];
        let log = directory.path().join("log");
        let process = Process::start("sqlite_lane", &arguments, placement.primary_core, &log)?;
        self.processes.push(process);
        self.directories.push(directory);
        self.wait_for(self.port, "/v3").await
    }

    async fn wait_for(&mut self, port: u16, path: &str) -> Result<()> {
        let deadline = Instant::now() + READY_LIMIT;
        loop {
            let answer = async { Connection::open(port).await?.get(path).await }.await;
            if matches!(answer, Ok((200, _))) {
                return Ok(());
            }
            let checked = self.processes.iter_mut().try_for_each(Process::check);
            if Instant::now() > deadline || checked.is_err() {
                let log = self.directories.last().map(|d| d.path().join("log"));
                let log = log.and_then(|log| std::fs::read_to_string(log).ok());
                checked.context(log.clone().unwrap_or_default())?;
                bail!(
                    "{path} was never 200: {answer:?}\n{}",
                    log.unwrap_or_default()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
