//! A replica that was away comes back by itself: by the log while the log reaches back to it.
//!
//! `TIDEGATE_AWAY_SECONDS` makes the absence longer (3 seconds without it; ten minutes is the
//! published figure). Run with `--no-capture` for the rate of catching up.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tidegate_e2e::client::as_integer;
use tidegate_e2e::node::converge;
use tidegate_e2e::{Client, Pair};

const AWAY_SECONDS: u64 = 3;
const CLIENTS: u64 = 16;
/// Keys that the writes are spread over, so that some repeat as in most applications.
const KEYS: u64 = 1_000_000;
const RETURN_LIMIT: Duration = Duration::from_secs(300);

fn away() -> Duration {
    let seconds = std::env::var("TIDEGATE_AWAY_SECONDS").ok();
    let seconds = seconds.and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(AWAY_SECONDS))
}

async fn number(client: &Client, query: &str) -> Result<i64> {
    let rows = client.execute(query, &[]).await.rows()?;
    let value: &Value = rows.first().and_then(|row| row.first()).context("a row")?;
    as_integer(value).context("a number")
}

/// Writes until `deadline`, ten rows a transaction. Gives how many were acknowledged.
async fn write(client: Client, writer: u64, deadline: Instant) -> Result<u64> {
    let mut written = 0;
    let mut state = writer.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    while Instant::now() < deadline {
        let mut rows = Vec::with_capacity(10);
        for _ in 0..10 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            rows.push(format!("({}, 'written by {writer}')", state % KEYS));
        }
        let sql = format!("INSERT OR REPLACE INTO t VALUES {}", rows.join(", "));
        client.execute(&sql, &[]).await.rows()?;
        written += 10;
    }
    Ok(written)
}

#[tokio::test]
async fn a_replica_that_was_away_catches_up_by_the_log() -> Result<()> {
    let table = "CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT)".to_owned();
    let mut pair = Pair::start(&[table], &[]).await?;
    let away = away();
    pair.replica.kill()?;
    let deadline = Instant::now() + away;
    let writers: Vec<_> = (0..CLIENTS)
        .map(|writer| tokio::spawn(write(pair.primary.client(), writer, deadline)))
        .collect();
    let mut written = 0;
    for writer in writers {
        written += writer.await??;
    }
    let rows = number(&pair.primary.client(), "SELECT count(*) FROM t").await?;
    let returned = Instant::now();
    pair.replica.spawn()?;
    pair.wait_same("SELECT count(*), max(id) FROM t", RETURN_LIMIT)
        .await?;
    let level = returned.elapsed();
    pair.replica.wait_ready(RETURN_LIMIT).await?;
    let ready = returned.elapsed();
    let seconds = level.as_secs_f64();
    println!(
        "away {away:?}: {written} changes to {rows} rows written ({:.0}/s); level {level:.1?} after \
         its start ({:.0} changes/s, {:.0} rows/s), ready after {ready:.1?}",
        written as f64 / away.as_secs_f64(),
        written as f64 / seconds,
        rows as f64 / seconds
    );
    let log = pair.replica.log();
    ensure!(
        !log.contains("a snapshot was installed"),
        "the log reached back, and yet a snapshot was taken"
    );
    let (code, said) = converge(&pair.primary, &[]).await?;
    ensure!(code == 0, "converge answered {code}: {said}");
    pair.stop_and_compare()
}
