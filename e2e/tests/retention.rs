//! The log of a running pair: short while both are there, kept while the replica is away, and
//! given up, visibly, when a limit says so.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tidegate_e2e::node::tidegate;
use tidegate_e2e::pair::READY_LIMIT;
use tidegate_e2e::{Node, Pair};

/// Changes of one statement.
const ROWS: u64 = 5_000;
/// What the log may hold when nobody is behind: the tail, a step, and one statement.
const SHORT: u64 = 10_000 + 10_000 + ROWS;
/// Time for the log to be trimmed.
const TRIM_LIMIT: Duration = Duration::from_secs(30);

fn table() -> Vec<String> {
    vec!["CREATE TABLE t (id INTEGER PRIMARY KEY, v)".to_owned()]
}

async fn write(pair: &Pair, statements: u64) -> Result<()> {
    let insert = format!("INSERT INTO t (v) SELECT value FROM generate_series(1, {ROWS})");
    for _ in 0..statements {
        pair.execute(std::slice::from_ref(&insert)).await?;
    }
    Ok(())
}

/// Records and floor of a node's log.
async fn log(node: &Node) -> Result<(u64, u64)> {
    let status = node.client().health_json("/status").await?;
    let number = |name: &str| status["log"][name].as_u64().context("a number");
    Ok((number("records")?, number("floor_seq")?))
}

async fn wait_short(node: &mut Node, records_max: u64) -> Result<()> {
    let client = node.client();
    node.wait_for("to have a short log", TRIM_LIMIT, async || {
        let status = client.health_json("/status").await;
        let records = status.ok().and_then(|s| s["log"]["records"].as_u64());
        records.is_some_and(|records| records <= records_max)
    })
    .await
}

/// Waits until the primary says of its replica what is wanted, and gives that.
async fn until(pair: &mut Pair, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let client = pair.primary.client();
    let told = async || {
        let lag = client.health_json("/lag").await.unwrap_or_default();
        lag["replicas"][0].clone()
    };
    pair.primary
        .wait_for(what, TRIM_LIMIT, async || wanted(&told().await))
        .await?;
    Ok(told().await)
}

fn is_away(replica: &Value) -> bool {
    replica["state"] == "disconnected"
}

fn snapshots(node: &Node) -> usize {
    node.log().matches("a snapshot was installed").count()
}

#[tokio::test]
async fn the_log_stays_short_and_is_kept_for_a_replica_that_is_away() -> Result<()> {
    let mut pair = Pair::start(&table(), &[]).await?;
    write(&pair, 20).await?;
    wait_short(&mut pair.primary, SHORT).await?;
    wait_short(&mut pair.replica, SHORT).await?;

    pair.replica.kill()?;
    let away = until(&mut pair, "to miss n2", is_away).await?;
    let applied = away["slot"]["from_seq"].as_u64().context("a slot")?;
    write(&pair, 20).await?;
    let (records, floor) = log(&pair.primary).await?;
    ensure!(
        floor <= applied && records >= 20 * ROWS,
        "{floor} {records}"
    );
    // The next process knows of it from the database alone.
    pair.primary.kill()?;
    pair.primary.spawn()?;
    pair.primary.wait_ready(READY_LIMIT).await?;
    write(&pair, 10).await?;
    let (records, floor) = log(&pair.primary).await?;
    ensure!(
        floor <= applied && records >= 30 * ROWS,
        "{floor} {records}"
    );
    let away = until(&mut pair, "to miss n2", is_away).await?;
    ensure!(away["slot"]["state"] == "active", "{away}");

    pair.replica.spawn()?;
    pair.replica.wait_ready(READY_LIMIT).await?;
    ensure!(snapshots(&pair.replica) == 0, "it was fed from the log");
    write(&pair, 4).await?;
    wait_short(&mut pair.primary, SHORT).await?;
    wait_short(&mut pair.replica, SHORT).await?;
    pair.wait_same("SELECT count(*) FROM t", READY_LIMIT)
        .await?;
    pair.stop_and_compare()
}

#[tokio::test]
async fn a_replica_away_past_the_limit_is_marked_and_takes_a_snapshot_by_itself() -> Result<()> {
    let mut pair = Pair::start(&table(), &["--log-keep-rows", "8000"]).await?;
    write(&pair, 1).await?;
    pair.wait_same("SELECT count(*) FROM t", READY_LIMIT)
        .await?;
    pair.replica.kill()?;
    write(&pair, 4).await?;
    let away = until(&mut pair, "to mark n2", |n2| {
        n2["slot"]["state"] == "needs_snapshot"
    })
    .await?;
    wait_short(&mut pair.primary, 8_000 + 8_000).await?;
    ensure!(away["reason"] == "snapshot_required", "{away}");
    ensure!(pair.primary.log().contains("its slot is given up"));
    let client = pair.primary.client();
    let (status, text) = client.health("/readyz/log_retention").await?;
    ensure!(status == 503 && text.contains("n2"), "{status} {text}");
    ensure!(
        client.is_ready().await,
        "an alarm is no reason to be unready"
    );
    let (_, metrics) = client.health("/metrics").await?;
    for line in [
        "tidegate_slot_needs_snapshot{replica=\"n2\"} 1.0",
        "tidegate_ready{check=\"log_retention\"} 0.0",
    ] {
        ensure!(metrics.contains(line), "{line} is missing in\n{metrics}");
    }

    pair.replica.spawn()?;
    pair.replica.wait_ready(READY_LIMIT).await?;
    ensure!(snapshots(&pair.replica) == 1);
    until(&mut pair, "to keep the log for n2 again", |n2| {
        n2["slot"]["state"] == "active"
    })
    .await?;
    let (status, text) = client.health("/readyz/log_retention").await?;
    ensure!(status == 200, "{text}");
    pair.wait_same("SELECT count(*) FROM t", READY_LIMIT)
        .await?;
    pair.stop_and_compare()
}

#[tokio::test]
async fn a_node_that_will_not_come_back_is_forgotten_by_its_operator() -> Result<()> {
    let mut pair = Pair::start(&table(), &[]).await?;
    let url = pair.primary.client().url();
    let forget = async |node: &str| {
        let limit = Duration::from_secs(30);
        tidegate(&["forget", node, "--url", &url], limit).await
    };
    let (code, text) = forget("n2").await?;
    ensure!(code == 1 && text.contains("connected"), "{code} {text}");
    let (code, text) = forget("n3").await?;
    ensure!(code == 1 && text.contains("nothing is known"), "{text}");
    let (code, text) = forget("a b").await?;
    ensure!(code == 3, "{code} {text}");
    pair.replica.kill()?;
    write(&pair, 10).await?;
    until(&mut pair, "to miss n2", is_away).await?;
    let (code, text) = forget("n2").await?;
    ensure!(code == 0, "{code} {text}");
    until(&mut pair, "to know nobody", Value::is_null).await?;
    wait_short(&mut pair.primary, SHORT).await?;
    pair.replica.spawn()?;
    pair.replica.wait_ready(READY_LIMIT).await?;
    ensure!(snapshots(&pair.replica) == 1);
    pair.stop_and_compare()
}
