//! The short storm: as the long one (`--bin storm`), sized for every change.

use std::time::Duration;

use anyhow::{Result, ensure};
use tidegate_e2e::storm::{self, Options};

async fn storm(options: Options) -> Result<()> {
    let report = storm::run(options).await?;
    println!("{report}");
    ensure!(report.passed(), "{:#?}", report.objections());
    Ok(())
}

fn short() -> Options {
    Options {
        // Enough that the load outlives the kills on a fast machine.
        statements: 20_000,
        kills: 1,
        load_limit: Duration::from_secs(120),
        ..Options::default()
    }
}

#[tokio::test]
async fn a_lone_primary_killed_under_load_loses_nothing_acknowledged() -> Result<()> {
    storm(Options {
        nodes: 1,
        kills: 2,
        ..short()
    })
    .await
}

#[tokio::test]
async fn a_pair_killed_under_load_ends_equal_and_loses_nothing_acknowledged() -> Result<()> {
    storm(Options {
        writes_everywhere: false,
        ..short()
    })
    .await
}

#[tokio::test]
async fn clients_of_both_nodes_lose_nothing_acknowledged() -> Result<()> {
    storm(short()).await
}
