//! The main job on real data: Chinook is imported, a replica joins, sixteen clients of several
//! kinds write, both nodes are proven equal, and a planted value does not go unseen.
//!
//! `TIDEGATE_E2E_STATEMENTS` makes the load longer (2,000 statements without it) and
//! `TIDEGATE_E2E_SEED` makes it another one. Run with `--no-capture` for the figures.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rusqlite::Connection;
use tempfile::TempDir;
use tidegate_e2e::mixed::{self, Driver, Plan, Results};
use tidegate_e2e::node::{NodeOptions, converge, tidegate};
use tidegate_e2e::pair::READY_LIMIT;
use tidegate_e2e::readiness::never_ready_while_diverging;
use tidegate_e2e::{Node, Pair, test_data};

const STATEMENTS: usize = 2_000;
const CLIENTS: usize = 16;
const IMPORT_LIMIT: Duration = Duration::from_secs(60);
/// The row that is changed behind the replica's back.
const PLANTED_ROW: i64 = 1_234;
/// What the replica's log says once.
const SNAPSHOT_INSTALLED: &str = "a snapshot was installed";
/// Pauses between kills; the load goes on meanwhile.
const KILL_PAUSE: Duration = Duration::from_millis(700);

#[tokio::test]
async fn a_pair_on_real_data_ends_equal_and_a_planted_value_is_named() -> Result<()> {
    let Some(file) = test_data("chinook.sqlite") else {
        return Ok(());
    };
    let mut pair = imported(&file).await?;
    let plan = plan()?;
    let results = timed("load", drive(&plan, &pair)).await?;
    results.check_undisturbed()?;
    ready_equal_and_stopped(&mut pair, &results).await?;
    planted_value_is_named(&mut pair).await
}

#[tokio::test]
async fn a_pair_on_real_data_whose_nodes_are_killed_ends_equal() -> Result<()> {
    let Some(file) = test_data("chinook.sqlite") else {
        return Ok(());
    };
    let mut pair = imported(&file).await?;
    let plan = plan()?;
    let client = pair.primary.client();
    let driver = Driver::find();
    let load = mixed::drive(&driver, &plan, &client);
    tokio::pin!(load);
    let mut kills = 0;
    let results = loop {
        tokio::select! {
            results = &mut load => break results?,
            () = tokio::time::sleep(KILL_PAUSE) => {}
        }
        let node = match kills % 2 {
            0 => &mut pair.primary,
            _ => &mut pair.replica,
        };
        node.kill()?;
        node.spawn()?;
        kills += 1;
    };
    println!("kills: {kills}");
    ensure!(
        kills >= 2,
        "the load was over before both nodes were killed"
    );
    ready_equal_and_stopped(&mut pair, &results).await
}

/// A primary that took over the file, with what the load needs, and a replica of it.
async fn imported(file: &Path) -> Result<Pair> {
    let dir = TempDir::new()?;
    let first = NodeOptions::primary("n1", &dir.path().join("n1"))?;
    let (from, to) = (file.to_string_lossy(), first.data_dir.to_string_lossy());
    let arguments = ["import", &from, "--data-dir", &to];
    let (code, text) = timed("import", tidegate(&arguments, IMPORT_LIMIT)).await?;
    ensure!(code == 0, "import exits with {code}: {text}");
    let mut primary = Node::start(first.clone())?;
    primary.wait_ready(READY_LIMIT).await?;
    let second = NodeOptions::replica_of(&first, "n2", &dir.path().join("n2"))?;
    let mut pair = Pair {
        primary,
        replica: Node::start(second)?,
        dir,
    };
    timed("replica ready", pair.replica.wait_ready(READY_LIMIT)).await?;
    // The log begins after the import: rows from before it come with a snapshot only.
    ensure!(
        pair.replica.log().contains(SNAPSHOT_INSTALLED),
        "no snapshot"
    );
    pair.execute(&mixed::setup()).await?;
    Ok(pair)
}

fn plan() -> Result<Plan> {
    let number = |name, default| match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}={text}")),
        Err(_) => Ok(default),
    };
    let statements = number("TIDEGATE_E2E_STATEMENTS", STATEMENTS)?;
    let seed = number("TIDEGATE_E2E_SEED", 1)?;
    Ok(Plan::new(seed as u64, CLIENTS, statements))
}

async fn drive(plan: &Plan, pair: &Pair) -> Result<Results> {
    let driver = Driver::find();
    if let Driver::Own(why) = &driver {
        println!("without the published clients: {why}");
    }
    mixed::drive(&driver, plan, &pair.primary.client()).await
}

/// Both are ready, `converge` says equal, and so does C SQLite about the stopped files.
async fn ready_equal_and_stopped(pair: &mut Pair, results: &Results) -> Result<()> {
    println!("statements: {:?}", results.statements());
    println!("operations: {:?}", results.operations());
    println!("errors: {:?}", results.by_code());
    timed("both ready", async {
        pair.primary.wait_ready(READY_LIMIT).await?;
        pair.replica.wait_ready(READY_LIMIT).await
    })
    .await?;
    for node in [&pair.primary, &pair.replica] {
        let (code, text) = timed("converge", converge(node, &[])).await?;
        ensure!(code == 0, "converge exits with {code}: {text}");
    }
    println!(
        "status: {}",
        pair.replica.client().health("/status").await?.1
    );
    pair.stop()?;
    let compared = pair.compare()?;
    println!("dump: {} tables, {} rows", compared.tables, compared.rows);
    ensure!(compared.integrity.is_empty(), "{:?}", compared.integrity);
    results.check_ledger(&ledger(&pair.primary.database())?)
}

fn ledger(file: &Path) -> Result<Vec<i64>> {
    let connection = Connection::open(file)?;
    let mut statement = connection.prepare("SELECT Op FROM Ledger ORDER BY Op")?;
    let ids = statement.query_map([], |row| row.get(0))?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

/// Changes a value on the stopped replica; from then on it is never ready, and `converge`
/// names where the value is.
async fn planted_value_is_named(pair: &mut Pair) -> Result<()> {
    let changed = Connection::open(pair.replica.database())?.execute(
        "UPDATE Track SET Composer = 'planted' WHERE TrackId = ?",
        [PLANTED_ROW],
    )?;
    ensure!(changed == 1, "{changed} rows changed");
    pair.primary.spawn()?;
    pair.replica.spawn()?;
    pair.primary.wait_ready(READY_LIMIT).await?;
    timed("found", never_ready_while_diverging(&mut pair.replica)).await?;
    let (code, text) = converge(&pair.replica, &[]).await?;
    println!("{text}");
    ensure!(code == 1, "converge exits with {code}: {text}");
    for word in ["Track", &PLANTED_ROW.to_string()] {
        ensure!(text.contains(word), "{word} is not named in: {text}");
    }
    ensure!(
        !pair.replica.client().is_ready().await,
        "ready with a difference"
    );
    Ok(())
}

async fn timed<T>(what: &str, future: impl Future<Output = Result<T>>) -> Result<T> {
    let started = Instant::now();
    let result = future.await;
    println!("{what}: {:.2} s", started.elapsed().as_secs_f64());
    result
}
