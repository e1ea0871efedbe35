//! Single durable INSERTs per second through the engine's sessions, beside the same load on
//! SQLite (rusqlite, WAL, FULL, a connection for each client, busy timeout).
//!
//! ```text
//! cargo run --release --package tidegate-bench --bin commit -- --clients 1,16,64,256 --seconds 3
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use hdrhistogram::Histogram;
use tidegate_engine::{Engine, Options, Params, Value};

/// Bytes of text in a row.
const ROW_BYTES: usize = 150;

#[derive(Parser)]
struct Flags {
    /// Numbers of clients to try.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    clients: Vec<usize>,
    /// How long each try lasts.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Only the engine.
    #[arg(long)]
    no_sqlite: bool,
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    let lasting = Duration::from_secs(flags.seconds);
    println!(
        "{:<8} {:>7} {:>10} {:>9} {:>9} {:>11}",
        "lane", "clients", "writes/s", "p50 ms", "p99 ms", "slowest ms"
    );
    for clients in flags.clients {
        let dir = tempfile::tempdir()?;
        report(
            "engine",
            clients,
            lasting,
            &engine(dir.path(), clients, lasting)?,
        );
        if !flags.no_sqlite {
            let dir = tempfile::tempdir()?;
            report(
                "sqlite",
                clients,
                lasting,
                &sqlite(dir.path(), clients, lasting)?,
            );
        }
    }
    Ok(())
}

fn report(lane: &str, clients: usize, lasting: Duration, seen: &Histogram<u64>) {
    let ms = |micros: u64| micros as f64 / 1e3;
    println!(
        "{lane:<8} {clients:>7} {:>10.0} {:>9.2} {:>9.2} {:>11.1}",
        seen.len() as f64 / lasting.as_secs_f64(),
        ms(seen.value_at_quantile(0.5)),
        ms(seen.value_at_quantile(0.99)),
        ms(seen.max()),
    );
}

fn engine(dir: &Path, clients: usize, lasting: Duration) -> Result<Histogram<u64>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()?;
    runtime.block_on(async {
        let engine = Engine::open(Options::new(dir))?;
        engine.start_primary("bench", "bench")?;
        let mut session = engine.session();
        let create = "CREATE TABLE t(id INTEGER PRIMARY KEY, client INTEGER, v TEXT)";
        session.execute(create, Params::default(), false).await?;
        let until = Instant::now() + lasting;
        let mut tasks = tokio::task::JoinSet::new();
        for client in 0..clients {
            tasks.spawn(engine_client(engine.clone(), client as i64, until));
        }
        let mut all = histogram()?;
        while let Some(seen) = tasks.join_next().await {
            all.add(seen??)?;
        }
        let stats = engine.stats();
        let groups = &stats.group_commit_size;
        eprintln!(
            "  groups of {:.1}, wal at most {} KiB, {} checkpoints, {:.2} ms a commit",
            groups.sum / groups.count().max(1) as f64,
            stats.wal_bytes_seen_max >> 10,
            stats.checkpoints_complete,
            1e3 * stats.commit_seconds.sum / stats.commit_seconds.count().max(1) as f64,
        );
        Ok(all)
    })
}

async fn engine_client(engine: Arc<Engine>, client: i64, until: Instant) -> Result<Histogram<u64>> {
    let mut session = engine.session();
    let mut seen = histogram()?;
    let text = "x".repeat(ROW_BYTES);
    while Instant::now() < until {
        let params = Params::positional([Value::from(client), Value::from(text.as_str())]);
        let started = Instant::now();
        let insert = "INSERT INTO t(client, v) VALUES (?, ?)";
        session.execute(insert, params, false).await?;
        seen.record(micros(started))?;
    }
    Ok(seen)
}

fn sqlite(dir: &Path, clients: usize, lasting: Duration) -> Result<Histogram<u64>> {
    let path = dir.join("lane.db");
    let connection = rusqlite::Connection::open(&path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE t(id INTEGER PRIMARY KEY, client INTEGER, v TEXT)",
    )?;
    let until = Instant::now() + lasting;
    let threads: Vec<_> = (0..clients)
        .map(|client| {
            let path = path.clone();
            std::thread::spawn(move || sqlite_client(&path, client as i64, until))
        })
        .collect();
    let mut all = histogram()?;
    for thread in threads {
        all.add(
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a client panicked"))??,
        )?;
    }
    Ok(all)
}

fn sqlite_client(path: &Path, client: i64, until: Instant) -> Result<Histogram<u64>> {
    let connection = rusqlite::Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(60))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let mut insert = connection.prepare("INSERT INTO t(client, v) VALUES (?, ?)")?;
    let mut seen = histogram()?;
    let text = "x".repeat(ROW_BYTES);
    while Instant::now() < until {
        let started = Instant::now();
        insert.execute(rusqlite::params![client, text])?;
        seen.record(micros(started))?;
    }
    Ok(seen)
}

fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new(3)?)
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
