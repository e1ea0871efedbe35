//! What tells a node to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, SIGINT, and the end of standard input where that counts.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    stdin: Option<tokio::task::JoinHandle<()>>,
}

impl Signals {
    /// Listens from now on.
    pub fn new(until_stdin_closes: bool) -> std::io::Result<Self> {
        // Blocks a thread to the process's end, which does not wait for it.
        let stdin = || drop(std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            stdin: until_stdin_closes.then(|| tokio::task::spawn_blocking(stdin)),
        })
    }

    /// Waits for the next one; standard input closes only once.
    pub async fn any(&mut self) {
        let stdin = async {
            match &mut self.stdin {
                Some(stdin) => stdin.await.ok(),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = stdin => self.stdin = None,
        }
    }
}
