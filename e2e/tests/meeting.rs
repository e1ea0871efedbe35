//! Nodes that list each other find out who leads, and stop when two of them do.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tidegate_e2e::client::{Client, Outcome, as_integer};
use tidegate_e2e::pair::READY_LIMIT;
use tidegate_e2e::{Node, NodeOptions};
use tidegate_engine::{Engine, NextEpoch, Options};

/// Longer than it takes to ask a peer, to be answered, and to draw conclusions.
const LIMIT: Duration = Duration::from_secs(20);

/// Nodes that list each other, the first of them the primary of an empty cluster.
fn listed(dir: &Path, ids: &[&str]) -> Result<Vec<NodeOptions>> {
    let mut all = Vec::new();
    for id in ids {
        let mut options = NodeOptions::primary(id, &dir.join(id))?;
        if !all.is_empty() {
            options.role = "replica".to_owned();
        }
        all.push(options);
    }
    let known = all.clone();
    for options in &mut all {
        let others: Vec<_> = known.iter().filter(|o| o.id != options.id).collect();
        options.know(&others);
    }
    Ok(all)
}

async fn status(client: &Client, field: &str) -> String {
    let status = client.health_json("/status").await.unwrap_or_default();
    match &status[field] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

async fn wait_state(node: &mut Node, state: &str) -> Result<()> {
    let client = node.client();
    let what = format!("to be {state}");
    node.wait_for(&what, LIMIT, async || {
        status(&client, "state").await == state
    })
    .await
}

async fn run(node: &Node, sql: &str) -> Result<Vec<Vec<Value>>> {
    let outcome = node.client().execute(sql, &[]).await;
    outcome.rows().with_context(|| sql.to_owned())
}

async fn count(node: &Node) -> Result<i64> {
    let rows = run(node, "SELECT count(*) FROM t").await?;
    as_integer(&rows[0][0]).context("an integer")
}

async fn wait_count(node: &mut Node, rows: i64) -> Result<()> {
    let client = node.client();
    node.wait_for("to hold the rows", LIMIT, async || {
        let found = client.execute("SELECT count(*) FROM t", &[]).await.rows();
        found.is_ok_and(|found| as_integer(&found[0][0]) == Some(rows))
    })
    .await
}

/// A write is refused with the code for it, and the text has these words.
async fn refused(node: &Node, words: &[&str]) -> Result<()> {
    let outcome = node
        .client()
        .execute("INSERT INTO t VALUES (99)", &[])
        .await;
    let Outcome::Failed(code, text) = &outcome else {
        anyhow::bail!("{outcome:?}");
    };
    ensure!(code == "TIDEGATE_FENCED", "{outcome:?}");
    for word in words {
        ensure!(text.contains(word), "{word} is not in: {text}");
    }
    Ok(())
}

/// Opens a new epoch on a stopped node's data.
async fn promote_offline(options: &NodeOptions) -> Result<()> {
    let (dir, id) = (options.data_dir.clone(), options.id.clone());
    let promote = move || {
        let engine = Engine::open(Options::new(dir))?;
        engine.start_primary_in(&id, "promotion", NextEpoch::Next)?;
        engine.shutdown();
        Ok::<_, tidegate_engine::Error>(())
    };
    tokio::task::spawn_blocking(promote).await??;
    Ok(())
}

#[tokio::test]
async fn a_replica_finds_the_primary_among_its_peers() -> Result<()> {
    let dir = TempDir::new()?;
    let options = listed(dir.path(), &["n1", "n2", "n3"])?;
    // The replicas come first: nobody leads, and nobody minds.
    let mut third = Node::start(options[2].clone())?;
    let mut second = Node::start(options[1].clone())?;
    wait_state(&mut third, "catching_up").await?;
    let mut first = Node::start(options[0].clone())?;
    first.wait_ready(READY_LIMIT).await?;
    run(&first, "CREATE TABLE t (a)").await?;
    for replica in [&mut second, &mut third] {
        replica.wait_ready(READY_LIMIT).await?;
        run(replica, "INSERT INTO t VALUES (1)").await?;
    }
    ensure!(count(&third).await? == 2);
    let peers = first.client().health_json("/status").await?["peers"].clone();
    let seen: Vec<_> = peers.as_array().context("a list")?.iter().collect();
    ensure!(seen.len() == 2, "{peers}");
    for peer in seen {
        ensure!(
            peer["reachable"] == true && peer["role"] == "replica",
            "{peers}"
        );
        ensure!(peer["problem"].is_null(), "{peers}");
    }
    Ok(())
}

#[tokio::test]
async fn an_empty_node_told_to_lead_follows_where_the_data_is() -> Result<()> {
    let dir = TempDir::new()?;
    let mut options = listed(dir.path(), &["n1", "n2"])?;
    options[1].role = "primary".to_owned();
    let mut first = Node::start(options[0].clone())?;
    first.wait_ready(READY_LIMIT).await?;
    run(&first, "CREATE TABLE t (a)").await?;
    let mut second = Node::start(options[1].clone())?;
    second.wait_ready(READY_LIMIT).await?;
    ensure!(status(&second.client(), "role").await == "replica");
    ensure!(second.log().contains("told to be the primary, but n1 at"));
    run(&second, "INSERT INTO t VALUES (1)").await?;
    ensure!(count(&first).await? == 1);
    Ok(())
}

#[tokio::test]
async fn of_two_empty_nodes_told_to_lead_one_follows() -> Result<()> {
    let dir = TempDir::new()?;
    let mut options = listed(dir.path(), &["n1", "n2"])?;
    options[1].role = "primary".to_owned();
    let mut second = Node::start(options[1].clone())?;
    let mut first = Node::start(options[0].clone())?;
    first.wait_ready(READY_LIMIT).await?;
    second.wait_ready(READY_LIMIT).await?;
    ensure!(status(&first.client(), "role").await == "primary");
    ensure!(status(&second.client(), "role").await == "replica");
    Ok(())
}

#[tokio::test]
async fn two_primaries_that_meet_both_refuse_writes_and_go_on_reading() -> Result<()> {
    let dir = TempDir::new()?;
    let options = listed(dir.path(), &["n1", "n2", "n3"])?;
    let mut nodes = Vec::new();
    for options in &options {
        nodes.push(Node::start(options.clone())?);
        let node = nodes.last_mut().context("just started")?;
        node.wait_ready(READY_LIMIT).await?;
    }
    run(&nodes[0], "CREATE TABLE t (a)").await?;
    for node in &mut nodes {
        wait_count(node, 0).await?;
        ensure!(node.stop()? == Some(0));
    }
    // Each is promoted while it sees nobody.
    promote_offline(&options[1]).await?;
    promote_offline(&options[2]).await?;
    let [_, second, third] = &mut nodes[..] else {
        unreachable!("three were started");
    };
    second.spawn()?;
    second.wait_ready(READY_LIMIT).await?;
    let mut open = second.client().stream();
    open.execute("BEGIN IMMEDIATE", &[]).await.rows()?;
    open.execute("INSERT INTO t VALUES (1)", &[]).await.rows()?;

    third.spawn()?;
    wait_state(second, "config_conflict").await?;
    wait_state(third, "config_conflict").await?;
    let late = open.execute("COMMIT", &[]).await;
    ensure!(
        matches!(&late, Outcome::Failed(code, _) if code == "TIDEGATE_FENCED"),
        "{late:?}"
    );
    for node in [&mut *second, &mut *third] {
        refused(node, &["n2 (at", "n3 (at", "both opened epoch 2", "Decide"]).await?;
        ensure!(
            count(node).await? == 0,
            "reads go on, and nothing was written"
        );
        ensure!(!node.client().is_ready().await);
        let readiness = node.client().readyz_verbose().await;
        ensure!(
            readiness.contains("[-]role failed: config_conflict:"),
            "{readiness}"
        );
    }
    // Out of sight is not settled.
    third.kill()?;
    let client = second.client();
    second
        .wait_for("to miss the other", LIMIT, async || {
            let status = client.health_json("/status").await.unwrap_or_default();
            let peers = status["peers"].as_array().cloned().unwrap_or_default();
            peers.iter().all(|peer| peer["reachable"] == false)
        })
        .await?;
    refused(second, &["both opened epoch 2"]).await?;
    Ok(())
}

#[tokio::test]
async fn two_nodes_that_each_began_a_cluster_stop_when_they_meet() -> Result<()> {
    let dir = TempDir::new()?;
    let mut options = listed(dir.path(), &["n1", "n2"])?;
    options[1].role = "primary".to_owned();
    let mut first = Node::start(options[0].clone())?;
    first.wait_ready(READY_LIMIT).await?;
    run(&first, "CREATE TABLE t (a)").await?;
    let with_peers = options[1].extra.clone();
    options[1].extra.clear();
    let mut second = Node::start(options[1].clone())?;
    second.wait_ready(READY_LIMIT).await?;
    run(&second, "CREATE TABLE t (a)").await?;
    // The first one sees the other and stops; the other is told when it looks.
    wait_state(&mut first, "config_conflict").await?;
    refused(
        &first,
        &["lead two clusters", "n1 cluster", "correct cluster.peers"],
    )
    .await?;
    second.stop()?;
    second.options_mut().extra = with_peers;
    second.spawn()?;
    // Started again it sees that the first one leads no more, and may lead.
    second.wait_ready(READY_LIMIT).await?;
    ensure!(status(&second.client(), "role").await == "primary");
    let client = second.client();
    second
        .wait_for("to tell of the other cluster", LIMIT, async || {
            let peers = status(&client, "peers").await;
            peers.contains("belongs to another cluster")
        })
        .await
}

#[tokio::test]
async fn a_primary_that_was_replaced_refuses_writes_and_follows_when_it_starts_again() -> Result<()>
{
    let dir = TempDir::new()?;
    let options = listed(dir.path(), &["n1", "n2", "n3"])?;
    let mut nodes = Vec::new();
    for options in &options {
        nodes.push(Node::start(options.clone())?);
        let node = nodes.last_mut().context("just started")?;
        node.wait_ready(READY_LIMIT).await?;
    }
    let [first, second, third] = &mut nodes[..] else {
        unreachable!("three were started");
    };
    run(first, "CREATE TABLE t (a)").await?;
    wait_count(second, 0).await?;
    second.stop()?;
    promote_offline(&options[1]).await?;
    second.spawn()?;
    second.wait_ready(READY_LIMIT).await?;
    wait_state(first, "fenced").await?;
    refused(first, &["n1 was replaced", "n2 leads in epoch 2"]).await?;
    ensure!(count(first).await? == 0);
    // The third one moves by itself, and what is written there reaches the new primary.
    third.wait_ready(READY_LIMIT).await?;
    run(second, "INSERT INTO t VALUES (1)").await?;
    wait_count(third, 1).await?;
    run(third, "INSERT INTO t VALUES (2)").await?;
    ensure!(count(second).await? == 2);

    first.stop()?;
    first.spawn()?;
    first.wait_ready(READY_LIMIT).await?;
    ensure!(status(&first.client(), "role").await == "replica");
    ensure!(count(first).await? == 2);
    ensure!(!first.log().contains("a snapshot was installed"));
    run(first, "INSERT INTO t VALUES (3)").await?;
    ensure!(count(second).await? == 3);
    Ok(())
}

#[tokio::test]
async fn a_restored_backup_is_not_written_over_what_others_hold() -> Result<()> {
    let dir = TempDir::new()?;
    let options = listed(dir.path(), &["n1", "n2"])?;
    let mut first = Node::start(options[0].clone())?;
    first.wait_ready(READY_LIMIT).await?;
    let mut second = Node::start(options[1].clone())?;
    run(&first, "CREATE TABLE t (a)").await?;
    second.wait_ready(READY_LIMIT).await?;
    first.stop()?;
    let backup = dir.path().join("backup.db");
    std::fs::copy(first.database(), &backup)?;
    first.spawn()?;
    first.wait_ready(READY_LIMIT).await?;
    run(&first, "INSERT INTO t VALUES (1)").await?;
    wait_count(&mut second, 1).await?;
    first.stop()?;
    std::fs::copy(&backup, first.database())?;
    first.spawn()?;
    wait_state(&mut first, "config_conflict").await?;
    refused(&first, &["n2 holds position", "rolled back"]).await?;
    ensure!(count(&second).await? == 1);
    Ok(())
}

#[tokio::test]
async fn a_list_of_peers_that_is_wrong_is_told() -> Result<()> {
    let dir = TempDir::new()?;
    let mut alone = NodeOptions::primary("n1", &dir.path().join("n1"))?;
    // Its own address under another name, and a name that nobody can resolve.
    let itself = format!("n2={}", alone.peer_url());
    let nowhere = "n3=http://no-such-host.invalid:9070".to_owned();
    alone.extra = ["--peer", &itself, "--peer", &nowhere]
        .map(str::to_owned)
        .to_vec();
    let mut first = Node::start(alone.clone())?;
    first.wait_ready(READY_LIMIT).await?;
    let client = first.client();
    first
        .wait_for("to know itself", LIMIT, async || {
            status(&client, "peers")
                .await
                .contains("is this node itself")
        })
        .await?;

    let mut twin = NodeOptions::primary("n1", &dir.path().join("twin"))?;
    twin.extra = vec!["--peer".to_owned(), format!("n2={}", alone.peer_url())];
    let mut twin = Node::start(twin)?;
    let deadline = std::time::Instant::now() + LIMIT;
    while twin.is_running() {
        ensure!(std::time::Instant::now() < deadline, "{}", twin.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let said = twin.log();
    ensure!(said.contains("called n1 already"), "{said}");
    Ok(())
}
