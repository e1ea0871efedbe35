//! A primary and a replica with some rows, for tests that need both.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::dump::{self, Comparison};
use crate::node::{Node, NodeOptions};

/// How long a node of a small pair may take to be ready.
pub const READY_LIMIT: Duration = Duration::from_secs(30);

/// Two daemons in one temporary directory.
pub struct Pair {
    /// Takes the writes.
    pub primary: Node,
    /// Follows it.
    pub replica: Node,
    /// Where both live; dropped last.
    pub dir: TempDir,
}

impl Pair {
    /// Starts a pair whose primary has executed these statements, and waits until both nodes
    /// are ready. `extra` are more arguments for both.
    pub async fn start(statements: &[String], extra: &[&str]) -> Result<Self> {
        Self::start_by_way_of(statements, extra, async |options| Ok(options.peer_url())).await
    }

    /// The same, with the replica dialling what `address` gives for the primary's options.
    pub async fn start_by_way_of(
        statements: &[String],
        extra: &[&str],
        address: impl AsyncFnOnce(&NodeOptions) -> Result<String>,
    ) -> Result<Self> {
        let dir = TempDir::new()?;
        let mut first = NodeOptions::primary("n1", &dir.path().join("n1"))?;
        first.extra = extra.iter().map(|&word| word.to_owned()).collect();
        let mut primary = Node::start(first.clone())?;
        primary.wait_ready(READY_LIMIT).await?;
        let mut second = NodeOptions::replica_of(&first, "n2", &dir.path().join("n2"))?;
        second.extra.clone_from(&first.extra);
        second.primary = Some(address(&first).await?);
        let mut pair = Self {
            primary,
            replica: Node::start(second)?,
            dir,
        };
        pair.execute(statements).await?;
        pair.replica.wait_ready(READY_LIMIT).await?;
        Ok(pair)
    }

    /// Runs statements on the primary.
    pub async fn execute(&self, statements: &[String]) -> Result<()> {
        let client = self.primary.client();
        for statement in statements {
            let outcome = client.execute(statement, &[]).await;
            outcome.rows().with_context(|| statement.clone())?;
        }
        Ok(())
    }

    /// Waits until the replica answers a query as the primary does.
    pub async fn wait_same(&mut self, query: &str, limit: Duration) -> Result<()> {
        let wanted = self.primary.client().execute(query, &[]).await.rows()?;
        let client = self.replica.client();
        let what = format!("to answer {query:?} with {wanted:?}");
        self.replica
            .wait_for(&what, limit, async || {
                let found = client.execute(query, &[]).await.rows();
                found.is_ok_and(|found| found == wanted)
            })
            .await
    }

    /// Stops both, in order, and compares their files with C SQLite.
    pub fn stop_and_compare(mut self) -> Result<()> {
        self.stop()?;
        self.compare().map(drop)
    }

    /// Stops both, the replica first.
    pub fn stop(&mut self) -> Result<()> {
        for node in [&mut self.replica, &mut self.primary] {
            let code = node.stop()?;
            ensure!(code == Some(0), "ended with {code:?}\n{}", node.log_tail());
        }
        Ok(())
    }

    /// Compares the files of stopped nodes with C SQLite; fails on any difference.
    pub fn compare(&self) -> Result<Comparison> {
        let compared = dump::compare(&self.primary.database(), &self.replica.database())?;
        ensure!(compared.is_equal(), "{compared:#?}");
        Ok(compared)
    }
}
