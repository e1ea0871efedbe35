//! One daemon process under test.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::checker::stored::DATABASE_FILE;
use crate::client::Client;

/// Limit for `tidegate converge` on a quiet pair.
const CONVERGE_LIMIT: Duration = Duration::from_secs(120);

/// How a node is started.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// The node's id.
    pub id: String,
    /// Its data directory.
    pub data_dir: PathBuf,
    /// `primary` or `replica`; counts only while the directory is empty.
    pub role: String,
    /// Peer address of the primary, for a replica.
    pub primary: Option<String>,
    /// Ports of the client, peer and health listeners.
    pub ports: [u16; 3],
    /// More arguments.
    pub extra: Vec<String>,
    /// Environment of the process, beside the inherited one.
    pub env: Vec<(String, String)>,
}

/// A running daemon; killed when dropped.
pub struct Node {
    options: NodeOptions,
    child: Option<Child>,
    log: PathBuf,
}

impl NodeOptions {
    /// A primary on free loopback ports.
    pub fn primary(id: &str, data_dir: &Path) -> Result<Self> {
        Ok(Self {
            id: id.to_owned(),
            data_dir: data_dir.to_owned(),
            role: "primary".to_owned(),
            primary: None,
            ports: free_ports()?,
            extra: Vec::new(),
            env: Vec::new(),
        })
    }

    /// A replica of `primary` on free loopback ports.
    pub fn replica_of(primary: &NodeOptions, id: &str, data_dir: &Path) -> Result<Self> {
        let mut options = Self::primary(id, data_dir)?;
        options.role = "replica".to_owned();
        options.primary = Some(primary.peer_url());
        Ok(options)
    }

    /// Lists other nodes as its peers, beside those it has.
    pub fn know(&mut self, others: &[&NodeOptions]) {
        for other in others {
            let peer = format!("{}={}", other.id, other.peer_url());
            self.extra.extend(["--peer".to_owned(), peer]);
        }
    }

    /// Where peers dial this node.
    pub fn peer_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[1])
    }
}

impl Node {
    /// Starts the daemon and returns at once.
    pub fn start(options: NodeOptions) -> Result<Self> {
        let log = options.data_dir.with_extension("log");
        let mut node = Self {
            options,
            child: None,
            log,
        };
        node.spawn()?;
        Ok(node)
    }

    /// Starts the process again after [`Self::stop`] or [`Self::kill`].
    pub fn spawn(&mut self) -> Result<()> {
        let options = &self.options;
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("opening {}", self.log.display()))?;
        let mut command = Command::new(binary()?);
        command.arg("serve").args(["--node-id", &options.id]);
        command.arg("--data-dir").arg(&options.data_dir);
        command.args(["--role", &options.role]);
        for (flag, port) in ["--client-addr", "--peer-addr", "--health-addr"]
            .iter()
            .zip(options.ports)
        {
            command.args([*flag, &format!("127.0.0.1:{port}")]);
        }
        if let Some(primary) = &options.primary {
            command.args(["--primary", primary]);
        }
        command
            .args(&options.extra)
            .envs(options.env.iter().cloned());
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.child = Some(command.spawn().context("starting tidegate")?);
        Ok(())
    }

    /// How it was started.
    pub fn options(&self) -> &NodeOptions {
        &self.options
    }

    /// Changes how it is started the next time.
    pub fn options_mut(&mut self) -> &mut NodeOptions {
        &mut self.options
    }

    /// Its database file.
    pub fn database(&self) -> PathBuf {
        self.options.data_dir.join(DATABASE_FILE)
    }

    /// A client of this node.
    pub fn client(&self) -> Client {
        Client::new(self.options.ports)
    }

    /// Process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// True while the process runs.
    pub fn is_running(&mut self) -> bool {
        match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => false,
        }
    }

    /// Kills the process as a power cut would (SIGKILL).
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Asks the process to stop (SIGTERM) and waits. Returns its exit code.
    pub fn stop(&mut self) -> Result<Option<i32>> {
        let Some(mut child) = self.child.take() else {
            return Ok(None);
        };
        signal(child.id(), "TERM")?;
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status.code());
            }
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                bail!(
                    "{} did not stop within 30 s\n{}",
                    self.options.id,
                    self.log_tail()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the node is ready.
    pub async fn wait_ready(&mut self, limit: Duration) -> Result<()> {
        let client = self.client();
        self.wait_for("to be ready", limit, || client.is_ready())
            .await
    }

    /// Waits until `condition` holds; on a time-out the error holds the node's own account.
    pub async fn wait_for<F>(
        &mut self,
        what: &str,
        limit: Duration,
        mut condition: impl FnMut() -> F,
    ) -> Result<()>
    where
        F: Future<Output = bool>,
    {
        let deadline = Instant::now() + limit;
        loop {
            if condition().await {
                return Ok(());
            }
            let running = self.is_running();
            if Instant::now() > deadline || !running {
                let account = self.client().readyz_verbose().await;
                bail!(
                    "waited for {} {what} (running: {running})\n{account}\n{}",
                    self.options.id,
                    self.log_tail()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The last lines the process wrote.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Everything the process wrote.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Processor time used so far, in seconds.
    pub fn cpu_seconds(&self) -> Option<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()?)).ok()?;
        // The name in parentheses may hold anything; fields are counted from behind it.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        let user: f64 = fields.next()?.parse().ok()?;
        let system: f64 = fields.next()?.parse().ok()?;
        Some((user + system) / 100.0)
    }

    /// Resident memory in KiB.
    pub fn memory_kib(&self) -> Option<u64> {
        self.memory_field("VmRSS:")
    }

    /// Highest resident memory in KiB since the start, or since [`Self::forget_peak`].
    pub fn memory_peak_kib(&self) -> Option<u64> {
        self.memory_field("VmHWM:")
    }

    /// Lets the peak of memory begin anew at what is resident now.
    pub fn forget_peak(&self) -> Result<()> {
        let pid = self.pid().context("it runs")?;
        // 5 is the kernel's word for "reset the high-water mark" (proc(5), clear_refs).
        Ok(std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?)
    }

    fn memory_field(&self, name: &str) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()?)).ok()?;
        let line = status.lines().find(|l| l.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill().ok();
    }
}

/// Sends a signal to a process that a test started.
pub fn signal(pid: u32, name: &str) -> Result<()> {
    let status = Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .status()?;
    if !status.success() {
        bail!("kill -{name} {pid} failed");
    }
    Ok(())
}

/// Runs `tidegate converge` against a node: exit code and what it said.
pub async fn converge(node: &Node, more: &[&str]) -> Result<(i32, String)> {
    let url = node.client().url();
    let mut arguments = vec!["converge", "--url", &url];
    arguments.extend(more);
    tidegate(&arguments, CONVERGE_LIMIT).await
}

/// Runs a command of the daemon's binary: exit code and output.
pub async fn tidegate(arguments: &[&str], limit: Duration) -> Result<(i32, String)> {
    let mut command = tokio::process::Command::new(binary()?);
    command.args(arguments).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.stderr(Stdio::piped()).spawn()?;
    let Ok(output) = tokio::time::timeout(limit, child.wait_with_output()).await else {
        bail!("`tidegate {}` took over {limit:?}", arguments.join(" "));
    };
    let output = output?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok((output.status.code().unwrap_or(-1), text))
}

/// The daemon built beside this test.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("TIDEGATE_BIN") {
        return Ok(path.into());
    }
    let test = std::env::current_exe()?;
    let candidates = test.ancestors().skip(1).take(2).map(|d| d.join("tidegate"));
    for candidate in candidates {
        if candidate.is_file() {
            return Ok(candidate);
        }
    }
    bail!(
        "no tidegate binary beside {}; build the workspace first",
        test.display()
    )
}

/// Three free ports. Another process could take one before the daemon does; the daemon then
/// says so and the test fails by name.
fn free_ports() -> Result<[u16; 3]> {
    let listeners = [bind()?, bind()?, bind()?];
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

fn bind() -> Result<TcpListener> {
    Ok(TcpListener::bind("127.0.0.1:0")?)
}
