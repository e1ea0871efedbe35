//! Who carries a plan out.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Answer, Op, Plan, Results, Way};
use crate::client::{Client, Outcome};

/// Pause of a client that cannot reach its node.
const UNREACHABLE_PAUSE: Duration = Duration::from_millis(100);

/// Who carries a plan out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Driver {
    /// `mixed.mjs` in this folder, with the published client and `curl`.
    Node(PathBuf),
    /// The client of these tests; holds why it is not the other one.
    Own(String),
}

impl Driver {
    /// The published clients when they are installed (`npm ci`, as `e2e/test` does).
    pub fn find() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/node");
        if !folder.join("node_modules/@libsql/client").is_dir() {
            return Self::Own(format!("no node_modules in {}", folder.display()));
        }
        for program in ["node", "curl"] {
            let mut command = std::process::Command::new(program);
            command.arg("--version").stdout(Stdio::null());
            if let Err(error) = command.status() {
                return Self::Own(format!("{program}: {error}"));
            }
        }
        Self::Node(folder)
    }
}

/// Carries a plan out against a node and tells what became of every operation.
pub async fn drive(driver: &Driver, plan: &Plan, client: &Client) -> Result<Results> {
    let answers = match driver {
        Driver::Node(folder) => by_node(folder, plan, client).await?,
        Driver::Own(_) => by_own(plan, client).await?,
    };
    Results::new(plan, answers)
}

async fn by_node(folder: &Path, plan: &Plan, client: &Client) -> Result<Vec<Answer>> {
    let scratch = tempfile::tempdir()?;
    let file = scratch.path().join("plan.json");
    std::fs::write(&file, serde_json::to_vec(plan)?)?;
    let mut command = tokio::process::Command::new("node");
    command.arg("mixed.mjs").arg(client.url()).arg(&file);
    command.current_dir(folder).kill_on_drop(true);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().await.context("starting node")?;
    if !output.status.success() {
        bail!("mixed.mjs ended with {}", output.status);
    }
    let lines = output.stdout.split(|&byte| byte == b'\n');
    lines
        .filter(|line| !line.is_empty())
        .map(|line| Ok(serde_json::from_slice(line)?))
        .collect()
}

async fn by_own(plan: &Plan, client: &Client) -> Result<Vec<Answer>> {
    let mut tasks = tokio::task::JoinSet::new();
    for client_plan in &plan.clients {
        let (ops, client) = (client_plan.ops.clone(), client.clone());
        tasks.spawn(async move {
            let mut answers = Vec::with_capacity(ops.len());
            for op in ops {
                let answer = answer_of(&op, run(&op, &client).await);
                if answer.code == "CONNECT" {
                    tokio::time::sleep(UNREACHABLE_PAUSE).await;
                }
                answers.push(answer);
            }
            answers
        });
    }
    Ok(tasks.join_all().await.into_iter().flatten().collect())
}

async fn run(op: &Op, client: &Client) -> Outcome {
    match op.way {
        Way::Single => {
            let (sql, args) = &op.statements[0];
            client.execute(sql, args).await
        }
        Way::Batch => client.transaction(&op.statements).await,
        Way::Commit => step_by_step(op, client, "COMMIT").await,
        Way::Rollback => step_by_step(op, client, "ROLLBACK").await,
    }
}

async fn step_by_step(op: &Op, client: &Client, end: &str) -> Outcome {
    let mut stream = client.stream();
    let begin = ("BEGIN IMMEDIATE".to_owned(), Vec::new());
    for (sql, args) in std::iter::once(&begin).chain(&op.statements) {
        let outcome = stream.execute(sql, args).await;
        if !outcome.is_acknowledged() {
            stream.close().await;
            // Nobody sent COMMIT.
            return match outcome {
                Outcome::Indeterminate(message) => Outcome::Failed("?".to_owned(), message),
                other => other,
            };
        }
    }
    let outcome = stream.execute(end, &[]).await;
    stream.close().await;
    outcome
}

fn answer_of(op: &Op, outcome: Outcome) -> Answer {
    let fate = (&outcome).into();
    let (code, message) = match outcome {
        Outcome::Acknowledged(_) => Default::default(),
        Outcome::Failed(code, message) => (code, message),
        Outcome::Indeterminate(message) => (String::new(), message),
    };
    Answer {
        id: op.id,
        fate,
        code,
        message,
    }
}
