//! A pair that nobody uses connects once and costs next to nothing.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tidegate_e2e::{Node, Pair};

/// How long the pair is watched; `TIDEGATE_IDLE_SECONDS` makes it longer.
const WATCHED_SECONDS: u64 = 5;
/// Share of a core that an idle node may use. Ten times what is wanted (1 %): other tests
/// share the machine, and a busy loop uses more by far.
const CPU_SHARE_MAX: f64 = 0.10;
/// Memory of an idle node.
const MEMORY_KIB_MAX: u64 = 80 * 1_024;

async fn connects(node: &Node) -> Result<f64> {
    let (_, metrics) = node.client().health("/metrics").await?;
    let lines = metrics
        .lines()
        .filter(|l| l.starts_with("tidegate_stream_connects_total"));
    Ok(lines
        .filter_map(|l| l.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum())
}

#[tokio::test]
async fn an_idle_pair_connects_once_and_rests() -> Result<()> {
    let seconds = std::env::var("TIDEGATE_IDLE_SECONDS")
        .ok()
        .and_then(|s| s.parse().ok());
    let seconds: u64 = seconds.unwrap_or(WATCHED_SECONDS);
    let pair = Pair::start(&[], &[]).await?;
    let used = |node: &Node| node.cpu_seconds().context("it runs");
    let before = [used(&pair.primary)?, used(&pair.replica)?];
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let after = [used(&pair.primary)?, used(&pair.replica)?];
    for (index, node) in [&pair.primary, &pair.replica].into_iter().enumerate() {
        let share = (after[index] - before[index]) / seconds as f64;
        let memory = node.memory_kib().context("it runs")?;
        println!(
            "{}: {:.2} % of a core, {memory} KiB",
            node.options().id,
            100.0 * share
        );
        ensure!(
            share <= CPU_SHARE_MAX,
            "{} uses {share} of a core",
            node.options().id
        );
        ensure!(
            memory <= MEMORY_KIB_MAX,
            "{} takes {memory} KiB",
            node.options().id
        );
    }
    let connects = connects(&pair.replica).await?;
    ensure!(connects == 1.0, "{connects} connects");
    pair.stop_and_compare()
}
