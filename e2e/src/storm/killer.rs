//! Kills a node in the middle of many unanswered requests.
//!
//! The node is stopped first (SIGSTOP), so that what it had answered by then can arrive and be
//! told from what it had not; with too few unanswered requests it goes on (SIGCONT) and the
//! killer tries again. A process killed while stopped dies as it would have at that moment.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::Storm;
use crate::history::Tally;
use crate::node::signal;
use crate::rng::Rng;

/// How long to try to catch a node with enough unanswered requests.
const CATCH_LIMIT: Duration = Duration::from_secs(30);
/// Time for answers that had left a node before it was stopped to be read by the clients.
const ANSWERS_ARRIVE: Duration = Duration::from_millis(20);
/// Longest time for which a killed node stays down.
const DOWN_MS_MAX: u64 = 800;

/// One kill.
#[derive(Debug, Clone)]
pub struct Kill {
    /// The node.
    pub node: String,
    /// When, since the load began.
    pub at: Duration,
    /// Statements sent until then.
    pub statements: u64,
    /// Requests that it had accepted and not answered.
    pub unanswered: usize,
    /// Fates of the requests that were on their way when it was stopped.
    pub fates: Tally,
    /// How long it took to be ready again; `None` when the next kill did not wait for that.
    pub ready_after: Option<Duration>,
}

impl Storm {
    /// All kills, spread evenly over the load, the nodes taking turns.
    pub(super) async fn kill_all(&mut self) -> Result<()> {
        let mut rng = Rng::new(self.options.seed ^ 0x6b69_6c6c);
        let kills = self.options.kills * self.nodes.len();
        let step = self.options.statements / (kills as u64 + 1);
        for kill in 0..kills {
            self.reach(step * (kill as u64 + 1)).await?;
            let node = (kill + 1) % self.nodes.len();
            let waits = kill + 1 == kills || rng.percent(70);
            let down = Duration::from_millis(rng.below(DOWN_MS_MAX));
            let killed = self.kill(node, down, waits).await?;
            self.report.kills.push(killed);
        }
        Ok(())
    }

    /// Waits until so many statements were sent.
    async fn reach(&mut self, statements: u64) -> Result<()> {
        while self.fleet.statements() < statements {
            if self.fleet.is_stopping() {
                bail!("stopped at {} statements", self.fleet.statements());
            }
            for node in &mut self.nodes {
                if !node.is_running() {
                    bail!("{} died by itself\n{}", node.options().id, node.log_tail());
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    async fn kill(&mut self, node: usize, down: Duration, waits: bool) -> Result<Kill> {
        self.fleet.focus(Some(node));
        let (moment, unanswered) = self.catch(node).await?;
        self.nodes[node].kill()?;
        self.fleet.focus(None);
        tokio::time::sleep(down).await;
        self.nodes[node].spawn()?;
        let started = Instant::now();
        if waits {
            let limit = self.options.ready_limit;
            self.nodes[node].wait_ready(limit).await?;
        }
        Ok(Kill {
            node: self.nodes[node].options().id.clone(),
            at: moment.duration_since(self.fleet.started()),
            statements: self.fleet.statements(),
            unanswered,
            fates: self.fleet.fates_at(node, moment),
            ready_after: waits.then(|| started.elapsed()),
        })
    }

    /// Stops the node at a moment when enough requests are unanswered, and leaves it stopped.
    async fn catch(&mut self, node: usize) -> Result<(Instant, usize)> {
        let wanted = self.options.unanswered;
        let deadline = Instant::now() + CATCH_LIMIT;
        while Instant::now() < deadline {
            if self.fleet.in_flight(node) < wanted {
                tokio::time::sleep(Duration::from_micros(200)).await;
                continue;
            }
            let Some(pid) = self.nodes[node]
                .pid()
                .filter(|_| self.nodes[node].is_running())
            else {
                bail!("{} died before its kill", self.nodes[node].options().id);
            };
            let moment = Instant::now();
            signal(pid, "STOP")?;
            tokio::time::sleep(ANSWERS_ARRIVE).await;
            let unanswered = self.fleet.unanswered_since(node, moment);
            if unanswered >= wanted {
                return Ok((moment, unanswered));
            }
            signal(pid, "CONT")?;
            tokio::time::sleep(ANSWERS_ARRIVE).await;
        }
        bail!(
            "{} never had {wanted} unanswered requests",
            self.nodes[node].options().id
        )
    }
}
