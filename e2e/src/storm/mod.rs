//! The storm: a pair under a mixed load while both nodes are killed again and again.
//!
//! Clients write through both nodes. In the middle of many unanswered requests one node is
//! killed with SIGKILL and started again, five times each in the long version. Meanwhile each
//! node is sampled: whenever it says that it is ready, a read must show a committed state. In
//! the end both must be ready by themselves, equal by `tidegate converge`, equal by a
//! comparison of the stopped files with C SQLite, and hold what the clients know.

mod killer;
mod report;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tempfile::TempDir;

pub use killer::Kill;
pub use report::{NodeReport, Report};

use crate::checker::stored::DATABASE_FILE;
use crate::checker::{self, Stored};
use crate::dump;
use crate::fleet::Fleet;
use crate::node::{self, Node, NodeOptions};
use crate::readiness::Sampler;
use crate::workload::{self, Ledgers, Mix, Plan};

/// How hard the storm blows.
#[derive(Debug, Clone)]
pub struct Options {
    /// Statements in all.
    pub statements: u64,
    /// Clients at the same time.
    pub clients: usize,
    /// Kills of each node.
    pub kills: usize,
    /// Fewest requests unanswered when a node is killed.
    pub unanswered: usize,
    /// What all choices are made from.
    pub seed: u64,
    /// Nodes: 2, or 1 for a storm over a lone primary.
    pub nodes: usize,
    /// Whether clients write through the replica too.
    pub writes_everywhere: bool,
    /// Shares of the workloads.
    pub mix: Mix,
    /// Limit for the load, kills included.
    pub load_limit: Duration,
    /// Limit for a node to become ready.
    pub ready_limit: Duration,
    /// Where data and logs go; a temporary directory that is removed if there is none.
    pub keep_in: Option<PathBuf>,
    /// More arguments for both nodes.
    pub extra: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            statements: 200_000,
            clients: 16,
            kills: 5,
            unanswered: 8,
            seed: 1,
            nodes: 2,
            writes_everywhere: true,
            mix: Mix::default(),
            load_limit: Duration::from_secs(1_800),
            ready_limit: Duration::from_secs(60),
            keep_in: None,
            extra: Vec::new(),
        }
    }
}

/// A pair in a storm.
struct Storm {
    options: Options,
    nodes: Vec<Node>,
    fleet: Arc<Fleet>,
    ledgers: Arc<Ledgers>,
    samplers: Vec<Sampler>,
    report: Report,
    _dir: Option<TempDir>,
}

/// Runs a storm to its verdict. An error is a storm that could not be judged.
pub async fn run(options: Options) -> Result<Report> {
    let started = Instant::now();
    let mut storm = Storm::rise(options).await?;
    // Whatever goes wrong from here on is part of the verdict.
    let outcome = storm.blow().await;
    storm.report.note("under load", outcome);
    let outcome = storm.calm().await;
    storm.report.note("afterwards", outcome);
    storm.settle().await;
    storm.report.elapsed = started.elapsed();
    Ok(storm.report)
}

impl Storm {
    /// Starts the nodes, makes the tables, and waits for everybody to be ready.
    async fn rise(options: Options) -> Result<Self> {
        let dir = TempDir::new()?;
        let base = options.keep_in.clone().unwrap_or(dir.path().to_owned());
        std::fs::create_dir_all(&base)?;
        let mut nodes = start_nodes(&options, &base)?;
        nodes[0].wait_ready(options.ready_limit).await?;
        let client = nodes[0].client();
        for statement in workload::setup() {
            let outcome = client.execute(&statement, &[]).await;
            outcome.rows().with_context(|| statement)?;
        }
        for node in &mut nodes {
            node.wait_ready(options.ready_limit).await?;
        }
        let fleet = Fleet::new(nodes.iter().map(Node::client).collect());
        if !options.writes_everywhere {
            fleet.write_to_the_first_only();
        }
        Ok(Self {
            ledgers: Ledgers::new(fleet.started()),
            samplers: nodes.iter().map(|n| Sampler::start(n.client())).collect(),
            report: Report::new(&options),
            options,
            nodes,
            fleet,
            _dir: Some(dir),
        })
    }

    /// Load and kills.
    async fn blow(&mut self) -> Result<()> {
        let plan = Plan {
            workers: self.options.clients,
            statements: self.options.statements,
            seed: self.options.seed,
            mix: self.options.mix,
        };
        let started = Instant::now();
        let (fleet, ledgers) = (self.fleet.clone(), self.ledgers.clone());
        let load = tokio::spawn(async move { workload::run(&fleet, &ledgers, plan).await });
        let limit = tokio::time::Instant::now() + self.options.load_limit;
        let kills = tokio::time::timeout_at(limit, self.kill_all()).await;
        if !matches!(kills, Ok(Ok(()))) {
            self.fleet.stop();
        }
        self.fleet.focus(None);
        let load = tokio::time::timeout_at(limit, load).await;
        self.fleet.stop();
        self.report.load = started.elapsed();
        kills.context("the kills took too long")??;
        load.context("the load took too long")??;
        Ok(())
    }

    /// Ready again without help, and equal by the operator's command.
    async fn calm(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            if !node.is_running() {
                node.spawn()?;
            }
        }
        for node in &mut self.nodes {
            node.wait_ready(self.options.ready_limit).await?;
        }
        if self.nodes.len() > 1 {
            self.report.converge = Some(node::converge(&self.nodes[0], &[]).await?);
        }
        Ok(())
    }

    /// Stops everything and judges what is stored.
    async fn settle(&mut self) {
        self.report.statements = self.fleet.statements();
        self.report.requests = self.fleet.tally();
        self.report.failures = self.fleet.failures();
        for (node, sampler) in self
            .nodes
            .iter_mut()
            .zip(std::mem::take(&mut self.samplers))
        {
            let samples = sampler.stop().await;
            let memory_kib = node.memory_kib();
            let stopped = node.stop();
            let id = node.options().id.clone();
            let judged = judge(&self.ledgers, &node.options().data_dir);
            self.report.nodes.push(NodeReport {
                id,
                samples,
                memory_kib,
                exit_code: stopped.as_ref().ok().copied().flatten(),
                judged: judged.map_err(|e| format!("{e:#}")),
                log: node.log(),
            });
        }
        if let [first, second, ..] = &self.nodes[..] {
            let file = |node: &Node| node.options().data_dir.join(DATABASE_FILE);
            let compared = dump::compare(&file(first), &file(second));
            self.report.compared = Some(compared.map_err(|e| format!("{e:#}")));
        }
    }
}

/// What is stored on one stopped node.
fn judge(ledgers: &Ledgers, data_dir: &Path) -> Result<(String, Vec<checker::Report>)> {
    let stored = Stored::copy_of(data_dir)?;
    Ok((stored.integrity()?, checker::judge(ledgers, &stored)?))
}

fn start_nodes(options: &Options, base: &Path) -> Result<Vec<Node>> {
    let mut first = NodeOptions::primary("n1", &base.join("n1"))?;
    first.extra.clone_from(&options.extra);
    let mut nodes = vec![Node::start(first.clone())?];
    if options.nodes > 1 {
        let mut second = NodeOptions::replica_of(&first, "n2", &base.join("n2"))?;
        second.extra.clone_from(&options.extra);
        nodes.push(Node::start(second)?);
    }
    Ok(nodes)
}
