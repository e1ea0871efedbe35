//! How long a commit on the primary takes to show on the replica.
//!
//! A probe overwrites one row with a number and, from the moment of the answer on, reads the
//! row on the replica until it shows the number. What is measured is what a client sees; its
//! resolution is one read, about a tenth of a millisecond.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::http::Connection;
use crate::load::LATENCY_US_MAX;

/// How long one write may take to show.
const SHOW_LIMIT: Duration = Duration::from_secs(10);

/// Latencies of a series of probes, in microseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Lag {
    /// Probes made.
    pub probes: u64,
    /// From the primary's answer to the first read that shows the write.
    pub acknowledged_to_applied: Percentiles,
    /// From sending the write to the first read that shows it.
    pub sent_to_applied: Percentiles,
    /// From sending the write to the primary's answer.
    pub sent_to_acknowledged: Percentiles,
    /// One read on the replica: the resolution.
    pub read_us: u64,
}

/// Points of a distribution, in microseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Percentiles {
    /// Median.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// Largest.
    pub slowest_us: u64,
}

/// Makes the row that probes overwrite.
pub async fn prepare(primary: u16) -> Result<()> {
    let mut connection = Connection::open(primary).await?;
    for sql in [
        "CREATE TABLE IF NOT EXISTS bench_probe (id INTEGER PRIMARY KEY, value INTEGER NOT NULL)",
        "INSERT OR REPLACE INTO bench_probe VALUES (1, 0)",
    ] {
        connection.scalar(sql).await?;
    }
    Ok(())
}

/// Probes for a while, one probe after the other with a pause between them.
pub async fn probe(primary: u16, replica: u16, seconds: f64, pause: Duration) -> Result<Lag> {
    let mut writer = Connection::open(primary).await?;
    let mut reader = Connection::open(replica).await?;
    let mut histograms =
        [(); 4].map(|()| Histogram::<u64>::new_with_max(LATENCY_US_MAX, 3).expect("three digits"));
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    let sql = "SELECT value FROM bench_probe WHERE id = 1";
    let mut value = writer.scalar(sql).await?.context("no probe row")?;
    while Instant::now() < deadline {
        value += 1;
        let sent = Instant::now();
        let update = format!("UPDATE bench_probe SET value = {value} WHERE id = 1");
        writer.scalar(&update).await?;
        let acknowledged = Instant::now();
        let applied = loop {
            let read = Instant::now();
            let shown = reader.scalar(sql).await?;
            histograms[3].saturating_record(micros(read.elapsed()));
            if shown == Some(value) {
                break Instant::now();
            }
            if acknowledged.elapsed() > SHOW_LIMIT {
                bail!("{value} does not show on the replica, which has {shown:?}");
            }
        };
        histograms[0].saturating_record(micros(applied - acknowledged));
        histograms[1].saturating_record(micros(applied - sent));
        histograms[2].saturating_record(micros(acknowledged - sent));
        tokio::time::sleep(pause).await;
    }
    Ok(Lag {
        probes: histograms[0].len(),
        acknowledged_to_applied: Percentiles::of(&histograms[0]),
        sent_to_applied: Percentiles::of(&histograms[1]),
        sent_to_acknowledged: Percentiles::of(&histograms[2]),
        read_us: histograms[3].value_at_quantile(0.5),
    })
}

impl Percentiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            p50_us: histogram.value_at_quantile(0.5),
            p99_us: histogram.value_at_quantile(0.99),
            slowest_us: histogram.max(),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
