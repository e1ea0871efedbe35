//! `tidegate dev`: a primary and a replica on loopback, in one terminal.
//!
//! Both are ordinary `tidegate serve` processes, so what is tried here is what runs elsewhere:
//! kill one and look. One that dies is started again; one that cannot start is not.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::address::Node as Http;
use super::{Exit, Failure};

/// Where the pair lives.
#[derive(Args)]
pub struct DevArgs {
    /// Directory of the pair; kept between runs
    #[arg(long, default_value = "./tidegate-dev")]
    dir: PathBuf,
    /// Removes what an earlier run left there
    #[arg(long)]
    fresh: bool,
    /// First client port; the replica takes the next one
    #[arg(long, default_value_t = 8080)]
    client_port: u16,
    /// First peer port
    #[arg(long, default_value_t = 9070)]
    peer_port: u16,
    /// First health port
    #[arg(long, default_value_t = 7071)]
    health_port: u16,
}

/// Pause before a node that died is started again.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for the pair to become ready before the greeting is printed anyway.
const READY_WAIT: Duration = Duration::from_secs(20);
/// Longest wait for a node to stop before it is killed.
const STOP_WAIT: Duration = Duration::from_secs(25);

/// Runs the pair until a signal.
pub async fn run(args: DevArgs) -> Result<Exit, Failure> {
    if args.fresh {
        remove(&args.dir)?;
    }
    std::fs::create_dir_all(&args.dir)
        .map_err(|e| Failure::failed(format!("{}: {e}", args.dir.display())))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::failed)?;
    let stop = CancellationToken::new();
    let members = [Member::new(&args, 0), Member::new(&args, 1)];
    let [first, second] = members
        .clone()
        .map(|member| tokio::spawn(member.keep_running(stop.clone())));
    let greeting = tokio::spawn(greet(members));
    let (mut first, mut second) = (first, second);
    let failed = tokio::select! {
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        ended = &mut first => ended.map_err(Failure::failed).flatten(),
        ended = &mut second => ended.map_err(Failure::failed).flatten(),
    };
    greeting.abort();
    stop.cancel();
    for task in [first, second] {
        // One of them has ended already, if something failed.
        if !task.is_finished() {
            task.await.ok();
        }
    }
    failed.map(|()| Exit::Success)
}

/// One of the two.
#[derive(Clone)]
struct Member {
    id: &'static str,
    data_dir: PathBuf,
    pid: Arc<AtomicU32>,
    ports: [u16; 3],
    other: (&'static str, u16),
    is_primary: bool,
}

impl Member {
    fn new(args: &DevArgs, index: u16) -> Self {
        let (id, other) = match index {
            0 => ("n1", "n2"),
            _ => ("n2", "n1"),
        };
        Self {
            id,
            data_dir: args.dir.join(id),
            pid: Arc::default(),
            ports: [args.client_port, args.peer_port, args.health_port].map(|p| p + index),
            other: (other, args.peer_port + 1 - index),
            is_primary: index == 0,
        }
    }

    /// Starts the process again whenever it dies. An error when it cannot start at all.
    async fn keep_running(self, stop: CancellationToken) -> Result<(), Failure> {
        loop {
            let started = Instant::now();
            let failed = |error| Failure::failed(format!("{}: {error}", self.id));
            let mut child = self.spawn().map_err(failed)?;
            let pid = child.id().unwrap_or_default();
            // Kept aside: waiting for a child would close it, and with it stop the node.
            let stdin = child.stdin.take();
            self.pid.store(pid, Ordering::Relaxed);
            eprintln!("{} runs as process {pid}", self.id);
            let status = tokio::select! {
                status = child.wait() => status.map_err(failed)?,
                () = stop.cancelled() => {
                    drop(stdin);
                    return stop_child(child).await.map_err(failed);
                }
            };
            if could_not_start(status, started.elapsed()) {
                return Err(Failure {
                    exit: Exit::Usage,
                    message: format!("{} could not start ({status}); see above", self.id),
                });
            }
            eprintln!("{} ended ({status}); starting it again", self.id);
            tokio::select! {
                () = tokio::time::sleep(RESTART_PAUSE) => {}
                () = stop.cancelled() => return Ok(()),
            }
        }
    }

    fn spawn(&self) -> std::io::Result<Child> {
        let [client, peer, health] = self.ports.map(|port| format!("127.0.0.1:{port}"));
        let (other, port) = self.other;
        let other_url = format!("http://127.0.0.1:{port}");
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--until-stdin-closes", "--node-id", self.id]);
        command.args(["--log-format", "text"]);
        command.arg("--data-dir").arg(&self.data_dir);
        command.args(["--client-addr", &client, "--peer-addr", &peer]);
        command.args(["--health-addr", &health]);
        command.args(["--peer", &format!("{other}={other_url}")]);
        match self.is_primary {
            true => command.args(["--role", "primary"]),
            false => command.args(["--role", "replica", "--primary", &other_url]),
        };
        // A group of its own: Ctrl-C reaches this process only, which stops both in order.
        command
            .process_group(0)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(log) = child.stderr.take() {
            tokio::spawn(copy_lines(self.id, log));
        }
        Ok(child)
    }

    async fn is_ready(&self) -> bool {
        let Ok(http) = Http::new(&format!("http://127.0.0.1:{}", self.ports[2])) else {
            return false;
        };
        matches!(http.get("/readyz").await, Ok((200, _)))
    }
}

/// Wrong usage, or an end of its own before it could have served anything. A signal is none.
fn could_not_start(status: ExitStatus, after: Duration) -> bool {
    status.code() == Some(Exit::Usage as i32) || status.code().is_some() && after < RESTART_PAUSE
}

/// The process stops when its standard input closes; one that does not is killed.
async fn stop_child(mut child: Child) -> std::io::Result<()> {
    match tokio::time::timeout(STOP_WAIT, child.wait()).await {
        Ok(status) => status.map(drop),
        Err(_) => child.kill().await,
    }
}

async fn greet([primary, replica]: [Member; 2]) {
    let deadline = Instant::now() + READY_WAIT;
    loop {
        let ready = primary.is_ready().await && replica.is_ready().await;
        if ready || Instant::now() > deadline {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let pid = |member: &Member| member.pid.load(Ordering::Relaxed);
    let [p, r] = [&primary.ports, &replica.ports];
    eprintln!(
        "
A primary (n1, process {}) and a replica (n2, process {}) run in {}. Try:

  curl http://127.0.0.1:{}/v3/pipeline -d '{{\"requests\":[
    {{\"type\":\"execute\",\"stmt\":{{\"sql\":\"CREATE TABLE IF NOT EXISTS hello (answer INTEGER)\"}}}},
    {{\"type\":\"execute\",\"stmt\":{{\"sql\":\"INSERT INTO hello VALUES (42)\"}}}}]}}'
  curl http://127.0.0.1:{}/v3/pipeline -d '{{\"requests\":[
    {{\"type\":\"execute\",\"stmt\":{{\"sql\":\"SELECT * FROM hello\"}}}}]}}'
  curl 'http://127.0.0.1:{}/readyz?verbose'
  curl http://127.0.0.1:{}/lag
  tidegate status --watch
  kill -9 {}        # it comes back, and catches up

Ctrl-C stops both; the data stays (--fresh removes it).
",
        pid(&primary),
        pid(&replica),
        parent(&primary.data_dir),
        p[0],
        r[0],
        r[2],
        p[2],
        pid(&replica),
    );
}

fn parent(path: &Path) -> String {
    path.parent().unwrap_or(path).display().to_string()
}

async fn copy_lines(id: &'static str, log: impl AsyncRead + Unpin) {
    let mut lines = BufReader::new(log).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        eprintln!("{id} | {line}");
    }
}

fn remove(dir: &Path) -> Result<(), Failure> {
    // Only what a pair leaves behind: the directory may have been named by mistake.
    for name in ["n1", "n2"] {
        let data = dir.join(name);
        match std::fs::remove_dir_all(&data) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::failed(format!("{}: {error}", data.display())));
            }
            _ => {}
        }
    }
    Ok(())
}
