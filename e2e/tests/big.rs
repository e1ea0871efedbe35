//! Transactions of every size arrive equal, and cost both nodes a bounded amount of memory.
//!
//! Sizes are those that stop others: 1,500 rows (more than the 1,024 at which the reference
//! system stands still), 100,000 rows, 50 MB of blobs (no message limit may matter), and one
//! of `TIDEGATE_BIG_ROWS` rows (200,000 without it; a million is the published figure). Run
//! with `--no-capture` for the figures.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tidegate_e2e::node::converge;
use tidegate_e2e::pair::READY_LIMIT;
use tidegate_e2e::{Node, Pair};

/// Rows of the largest transaction.
const BIG_ROWS: u64 = 200_000;
/// Memory over idle that a transaction may cost a node: bar P11.
const MEMORY_KIB_MAX: u64 = 256 * 1_024;
/// How long the replica may take to have the largest one.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(120);

/// Every form of ALTER TABLE, with rows and a trigger that it must carry along.
const ALTER_FORMS: &[&str] = &[
    "CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT, pages INTEGER, spare TEXT)",
    "CREATE TABLE seen (book INTEGER, title TEXT)",
    "CREATE TRIGGER book_seen AFTER UPDATE ON book BEGIN INSERT INTO seen VALUES (new.id, new.title); END",
    "INSERT INTO book SELECT value, 'b' || value, value * 3, 's' FROM generate_series(1, 1500)",
    "ALTER TABLE book ADD COLUMN price REAL",
    "ALTER TABLE book ADD COLUMN state TEXT NOT NULL DEFAULT 'new'",
    "UPDATE book SET price = pages * 1.5 WHERE id % 2",
    "ALTER TABLE book RENAME COLUMN pages TO leaves",
    "UPDATE book SET leaves = leaves + 1 WHERE id % 3 = 0",
    "ALTER TABLE book DROP COLUMN spare",
    "DELETE FROM book WHERE id % 5 = 0",
    "ALTER TABLE book RENAME TO volume",
    "UPDATE volume SET state = 'old' WHERE id < 100",
    "CREATE TABLE book (id INTEGER PRIMARY KEY, other TEXT)",
    "INSERT INTO book VALUES (1, 'another table of the old name')",
];

fn series(table: &str, rows: u64) -> String {
    format!(
        "INSERT INTO {table} (n, body) SELECT value, 'row ' || value FROM generate_series(1, {rows})"
    )
}

fn big_rows() -> u64 {
    let rows = std::env::var("TIDEGATE_BIG_ROWS").ok();
    rows.and_then(|rows| rows.parse().ok()).unwrap_or(BIG_ROWS)
}

/// What a node held before, to compare its peak with.
fn rest(node: &Node) -> Result<u64> {
    node.forget_peak()?;
    node.memory_kib().context("it runs")
}

/// Runs statements as one transaction and waits until the replica shows what the primary
/// does. Gives both nodes' memory over idle, in KiB.
async fn transaction(pair: &mut Pair, what: &str, statements: &[String]) -> Result<[u64; 2]> {
    let idle = [rest(&pair.primary)?, rest(&pair.replica)?];
    let mut all = vec![("BEGIN IMMEDIATE", &[][..])];
    all.extend(statements.iter().map(|sql| (sql.as_str(), &[][..])));
    all.push(("COMMIT", &[][..]));
    let started = Instant::now();
    for outcome in pair.primary.client().pipeline(&all).await {
        outcome.rows().context(what.to_owned())?;
    }
    let written = started.elapsed();
    let count = "SELECT count(*), sum(n), sum(length(body)) FROM t";
    pair.wait_same(count, ARRIVAL_LIMIT).await?;
    let arrived = started.elapsed();
    let peak = [&pair.primary, &pair.replica].map(|node| node.memory_peak_kib().unwrap_or(0));
    let over = [0, 1].map(|i| peak[i].saturating_sub(idle[i]));
    println!(
        "{what}: committed after {written:.1?}, on the replica after {arrived:.1?}; memory over \
         idle: primary {} KiB, replica {} KiB (idle {} and {})",
        over[0], over[1], idle[0], idle[1]
    );
    Ok(over)
}

#[tokio::test]
async fn transactions_of_every_size_arrive_equal_and_cost_bounded_memory() -> Result<()> {
    let table = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER, body)".to_owned();
    let mut pair = Pair::start(&[table], &[]).await?;
    let blobs: Vec<String> = (0..50)
        .map(|n| format!("INSERT INTO t (n, body) VALUES ({n}, randomblob(1000000))"))
        .collect();
    let rows = big_rows();
    let sizes = [
        ("1,500 rows".to_owned(), vec![series("t", 1_500)]),
        ("100,000 rows".to_owned(), vec![series("t", 100_000)]),
        ("50 MB".to_owned(), blobs),
        (format!("{rows} rows"), vec![series("t", rows)]),
        (
            "one row of 50 MB".to_owned(),
            vec!["INSERT INTO t (n, body) VALUES (7, randomblob(50000000))".to_owned()],
        ),
    ];
    for (what, statements) in sizes {
        for over in transaction(&mut pair, &what, &statements).await? {
            ensure!(over <= MEMORY_KIB_MAX, "{what} cost {over} KiB");
        }
    }
    ready_and_equal(&mut pair).await?;
    pair.stop_and_compare()
}

#[tokio::test]
async fn every_form_of_alter_table_arrives_between_the_rows_it_came_between() -> Result<()> {
    let forms: Vec<String> = ALTER_FORMS.iter().map(|&sql| sql.to_owned()).collect();
    let mut pair = Pair::start(&[], &[]).await?;
    pair.execute(&forms).await?;
    ready_and_equal(&mut pair).await?;
    // And again as one batch: what happened while the replica was away.
    let undo = ["DROP TABLE volume", "DROP TABLE book", "DROP TABLE seen"];
    pair.execute(&undo.map(str::to_owned)).await?;
    pair.replica.kill()?;
    pair.execute(&forms).await?;
    pair.replica.spawn()?;
    ready_and_equal(&mut pair).await?;
    pair.stop_and_compare()
}

async fn ready_and_equal(pair: &mut Pair) -> Result<()> {
    pair.replica.wait_ready(READY_LIMIT).await?;
    let (code, said) = converge(&pair.primary, &[]).await?;
    ensure!(code == 0, "converge answered {code}: {said}");
    Ok(())
}
