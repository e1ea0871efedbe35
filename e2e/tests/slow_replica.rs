//! A bad network between the nodes costs the primary nothing but log.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tidegate_e2e::Pair;
use tidegate_e2e::pair::READY_LIMIT;
use tidegate_e2e::proxy::{Conditions, Proxy};

/// Memory a primary may take while its replica cannot keep up.
const MEMORY_GROWTH_KIB_MAX: u64 = 64 * 1_024;

/// How long a replica may go on being ready when nothing, or too little, arrives.
const UNREADY_LIMIT: Duration = Duration::from_secs(30);

/// A pair whose replica dials through a proxy.
async fn pair_behind_proxy() -> Result<(Pair, Proxy)> {
    let table = "CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)".to_owned();
    let mut proxy = None;
    let pair = Pair::start_by_way_of(&[table], &[], async |options| {
        let started = Proxy::start(options.ports[1]).await?;
        let url = started.url();
        proxy = Some(started);
        Ok(url)
    })
    .await?;
    Ok((pair, proxy.expect("started with the pair")))
}

/// Inserts rows of 10 kB, which no compression makes small.
fn inserts(from: u32, count: u32) -> Vec<String> {
    (from..from + count)
        .map(|id| format!("INSERT INTO t VALUES ({id}, randomblob(10000))"))
        .collect()
}

#[tokio::test]
async fn a_slow_replica_leaves_the_primary_flat_and_prompt() -> Result<()> {
    let (mut pair, proxy) = pair_behind_proxy().await?;
    proxy.set(Conditions::slow(10_000));
    let before = pair.primary.memory_kib().expect("it runs");
    let started = Instant::now();
    pair.execute(&inserts(1, 3_000)).await?;
    let written = started.elapsed();
    let grown = pair
        .primary
        .memory_kib()
        .expect("it runs")
        .saturating_sub(before);
    println!("30 MB in {written:?}; the primary grew by {grown} KiB");
    ensure!(grown < MEMORY_GROWTH_KIB_MAX, "grown by {grown} KiB");
    let client = pair.replica.client();
    pair.replica
        .wait_for("to be unready", UNREADY_LIMIT, async || {
            !client.is_ready().await
        })
        .await?;
    let stopping = Instant::now();
    let code = pair.primary.stop()?;
    ensure!(code == Some(0), "ended with {code:?}");
    ensure!(
        stopping.elapsed() < Duration::from_secs(10),
        "{:?}",
        stopping.elapsed()
    );
    pair.primary.spawn()?;
    proxy.heal();
    pair.replica.wait_ready(READY_LIMIT).await?;
    pair.wait_same("SELECT count(*) FROM t", READY_LIMIT)
        .await?;
    pair.stop_and_compare()
}

#[tokio::test]
async fn a_silent_network_makes_the_replica_unready_and_heals_by_itself() -> Result<()> {
    let (mut pair, proxy) = pair_behind_proxy().await?;
    for conditions in [
        Conditions::silent(),
        Conditions {
            swallow_replies: true,
            ..Conditions::default()
        },
        Conditions {
            swallow_requests: true,
            ..Conditions::default()
        },
        Conditions::loud(),
    ] {
        proxy.set(conditions);
        pair.execute(&inserts(1, 5)).await?;
        let client = pair.replica.client();
        pair.replica
            .wait_for("to be unready", UNREADY_LIMIT, async || {
                !client.is_ready().await
            })
            .await?;
        proxy.heal();
        pair.replica.wait_ready(Duration::from_secs(60)).await?;
        pair.execute(&["DELETE FROM t".to_owned()]).await?;
        pair.wait_same("SELECT count(*) FROM t", READY_LIMIT)
            .await?;
    }
    pair.stop_and_compare()
}
