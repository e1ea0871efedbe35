//! Differences made behind a replica's back are found, named, and keep it unready.

use std::time::Duration;

use anyhow::{Result, ensure};
use tidegate_e2e::node::converge;
use tidegate_e2e::pair::READY_LIMIT;
use tidegate_e2e::plant::{Plant, bend_byte};
use tidegate_e2e::readiness::never_ready_while_diverging;
use tidegate_e2e::{Node, Pair};

/// The operator's command names what was planted.
async fn named_by_converge(node: &Node, plant: Plant) -> Result<()> {
    let (code, text) = converge(node, &[]).await?;
    ensure!(code == 1, "{plant:?}: converge exits with {code}: {text}");
    for word in plant.named() {
        ensure!(
            text.contains(word),
            "{plant:?}: {word:?} is not named in: {text}"
        );
    }
    Ok(())
}

async fn mended_by_repair(pair: &mut Pair) -> Result<()> {
    let (code, text) = converge(&pair.replica, &["--repair"]).await?;
    ensure!(code == 0, "repair exits with {code}: {text}");
    pair.replica.wait_ready(READY_LIMIT).await?;
    let (code, text) = converge(&pair.replica, &[]).await?;
    ensure!(
        code == 0,
        "converge exits with {code} after the repair: {text}"
    );
    Ok(())
}

async fn planted_while_stopped(plant: Plant) -> Result<Pair> {
    let mut pair = Pair::start(&Plant::garden(), &[]).await?;
    pair.replica.stop()?;
    plant.plant(&pair.replica.options().data_dir)?;
    pair.replica.spawn()?;
    never_ready_while_diverging(&mut pair.replica).await?;
    named_by_converge(&pair.replica, plant).await?;
    Ok(pair)
}

#[tokio::test]
async fn a_value_planted_on_the_stopped_replica_keeps_it_unready_and_is_named() -> Result<()> {
    planted_while_stopped(Plant::Value).await?;
    Ok(())
}

#[tokio::test]
async fn every_difference_planted_while_stopped_is_found_named_and_repaired() -> Result<()> {
    for plant in Plant::ALL {
        let mut pair = planted_while_stopped(plant).await?;
        mended_by_repair(&mut pair).await?;
        pair.stop_and_compare()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_byte_changed_under_a_running_replica_is_found_within_a_pass() -> Result<()> {
    let mut pair = Pair::start(&Plant::garden(), &["--proof-renewal", "1s"]).await?;
    // Restarted cleanly, so that everything is in the pages and nothing in caches.
    pair.replica.stop()?;
    pair.replica.spawn()?;
    pair.replica.wait_ready(READY_LIMIT).await?;
    let file = pair.replica.options().data_dir.join("tidegate.db");
    bend_byte(&file)?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    never_ready_while_diverging(&mut pair.replica).await?;
    named_by_converge(&pair.replica, Plant::PageByte).await?;
    mended_by_repair(&mut pair).await?;
    pair.stop_and_compare()
}
