//! All lanes, interleaved, several rounds: the figures of `RESULTS.md`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::http::Connection;
use crate::lag::{self, Lag};
use crate::lane::{Lane, LaneKind, Placement};
use crate::load::{self, Measurement, Plan};
use crate::process::Usage;
use crate::shape::{self, Shape};

/// Numbers of clients that throughput is measured at.
pub const CLIENTS: [u64; 4] = [1, 16, 64, 256];
/// Load before each measurement.
const WARMUP_SECONDS: f64 = 0.5;

/// How much to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Rounds; figures are medians over them.
    pub rounds: usize,
    /// Length of each measurement.
    pub seconds: f64,
    /// Length of the idle part.
    pub idle_seconds: f64,
    /// Rows that the convergence pass compares.
    pub pass_rows: u64,
    /// Where data goes.
    pub data_dir: PathBuf,
    /// A directory in memory for the replica of the pinned part.
    pub memory_dir: PathBuf,
}

/// Everything measured.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// Facts of the machine.
    pub machine: Vec<(String, String)>,
    /// Requests per second over lanes, shapes and clients.
    pub throughput: Vec<Sample>,
    /// The same for writes with the primary pinned to one core.
    pub pinned: Vec<Sample>,
    /// Commit to applied, a lone writer: one entry a round.
    pub lag_lone: Vec<Lag>,
    /// Commit to applied beside 16 writers.
    pub lag_loaded: Vec<Lag>,
    /// One 4 KiB write with fsync, microseconds, a round each.
    pub fsync_us: Vec<u64>,
    /// The idle pair.
    pub idle: Option<Idle>,
    /// The convergence pass.
    pub pass: Option<Pass>,
    /// Parts that failed, and why.
    pub failures: Vec<String>,
}

/// One measurement of one lane.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Which lane.
    pub lane: LaneKind,
    /// Which round.
    pub round: usize,
    /// What load found.
    pub load: Measurement,
    /// What each process used meanwhile: processor seconds, and memory at the end.
    pub usage: Vec<Usage>,
}

/// A pair without traffic.
#[derive(Debug, Serialize, Deserialize)]
pub struct Idle {
    /// For how long.
    pub seconds: f64,
    /// What primary and replica used.
    pub usage: Vec<Usage>,
    /// Connections the replica made, since it was started.
    pub connects: Option<u64>,
}

/// One convergence pass.
#[derive(Debug, Serialize, Deserialize)]
pub struct Pass {
    /// Rows compared.
    pub rows: u64,
    /// How long it took.
    pub seconds: f64,
    /// Writes per second at 16 clients before and while passes ran.
    pub writes_without: f64,
    /// The same while passes ran.
    pub writes_beside: f64,
}

/// Runs everything. A part that fails is noted and the rest goes on.
pub async fn run(options: &Options) -> Result<Results> {
    std::fs::create_dir_all(&options.data_dir)?;
    let mut results = Results {
        machine: machine(),
        ..Results::default()
    };
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        results.fsync_us.push(fsync_floor(&options.data_dir)?);
        let outcome = throughput(options, round, &mut results).await;
        note(&mut results.failures, "throughput", outcome);
        let outcome = pinned(options, round, &mut results.pinned).await;
        note(&mut results.failures, "pinned", outcome);
        match lags(options).await {
            Ok((lone, loaded)) => {
                results.lag_lone.push(lone);
                results.lag_loaded.push(loaded);
            }
            Err(error) => results.failures.push(format!("lag: {error:#}")),
        }
    }
    let idle = idle(options).await.map(|idle| results.idle = Some(idle));
    note(&mut results.failures, "idle", idle);
    let pass = pass(options).await.map(|pass| results.pass = Some(pass));
    note(&mut results.failures, "pass", pass);
    Ok(results)
}

/// Requests per second of each lane, the lanes taking turns at each point. A lane that does
/// not start leaves the others to be measured.
async fn throughput(options: &Options, round: usize, results: &mut Results) -> Result<()> {
    let mut lanes = Vec::new();
    for kind in [LaneKind::Sqlite, LaneKind::Single, LaneKind::Pair] {
        match Lane::start(kind, &options.data_dir, &Placement::default()).await {
            Ok(lane) => {
                shape::prepare(&mut Connection::open(lane.port).await?).await?;
                lanes.push(lane);
            }
            Err(error) => note(&mut results.failures, kind.name(), Err(error)),
        }
    }
    for shape in [
        Shape::Insert,
        Shape::Read,
        Shape::Read10,
        Shape::Mixed,
        Shape::Empty,
    ] {
        for clients in CLIENTS {
            for lane in &lanes {
                let sample = measure(lane, shape, clients, round, options).await?;
                results.throughput.push(sample);
            }
        }
    }
    lanes.into_iter().try_for_each(Lane::stop)
}

/// Writes at 16 clients, the primary alone on one core: what a replica costs its primary.
async fn pinned(options: &Options, round: usize, samples: &mut Vec<Sample>) -> Result<()> {
    pin_self("1")?;
    let outcome = pinned_lanes(options, round, samples).await;
    pin_self("0-1")?;
    outcome
}

async fn pinned_lanes(options: &Options, round: usize, samples: &mut Vec<Sample>) -> Result<()> {
    let placement = Placement {
        primary_core: Some(0),
        replica_core: Some(1),
        replica_dir: Some(options.memory_dir.clone()),
    };
    for kind in [LaneKind::Single, LaneKind::Pair] {
        let lane = Lane::start(kind, &options.data_dir, &placement).await?;
        shape::prepare(&mut Connection::open(lane.port).await?).await?;
        samples.push(measure(&lane, Shape::Insert, 16, round, options).await?);
        lane.stop()?;
    }
    Ok(())
}

async fn measure(
    lane: &Lane,
    shape: Shape,
    clients: u64,
    round: usize,
    options: &Options,
) -> Result<Sample> {
    let before = lane.usage()?;
    let load = load::run(Plan {
        port: lane.port,
        shape,
        clients,
        seconds: options.seconds,
        warmup_seconds: WARMUP_SECONDS,
        rate: None,
        run: fresh_run(),
    })
    .await
    .with_context(|| format!("{}, {shape:?}, {clients} clients", lane.kind.name()))?;
    let usage = used_since(&before, &lane.usage()?);
    eprintln!(
        "  {:32} {:8} {clients:4} clients {:9.0}/s  p99 {:7.2} ms  slowest {:7.1} ms  {} errors",
        lane.kind.name(),
        format!("{shape:?}"),
        load.rate,
        load.p99_us as f64 / 1e3,
        load.slowest_us as f64 / 1e3,
        load.errors
    );
    Ok(Sample {
        lane: lane.kind,
        round,
        load,
        usage,
    })
}

/// Commit to applied: a lone writer, then a probe beside 16 writers.
async fn lags(options: &Options) -> Result<(Lag, Lag)> {
    let lane = Lane::start(LaneKind::Pair, &options.data_dir, &Placement::default()).await?;
    let replica = lane.replica_port.context("a pair has a replica")?;
    shape::prepare(&mut Connection::open(lane.port).await?).await?;
    lag::prepare(lane.port).await?;
    let pause = Duration::from_millis(5);
    let lone = lag::probe(lane.port, replica, options.seconds, pause).await?;
    let plan = Plan {
        port: lane.port,
        shape: Shape::Insert,
        clients: 16,
        seconds: options.seconds + 1.0,
        warmup_seconds: 0.0,
        rate: None,
        run: fresh_run(),
    };
    let load = tokio::spawn(load::run(plan));
    let loaded = lag::probe(lane.port, replica, options.seconds, pause).await;
    load.await??;
    lane.stop()?;
    Ok((lone, loaded?))
}

/// What a pair uses when nobody asks for anything.
async fn idle(options: &Options) -> Result<Idle> {
    let lane = Lane::start(LaneKind::Pair, &options.data_dir, &Placement::default()).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (before, started) = (lane.usage()?, Instant::now());
    tokio::time::sleep(Duration::from_secs_f64(options.idle_seconds)).await;
    let usage = used_since(&before, &lane.usage()?);
    let seconds = started.elapsed().as_secs_f64();
    let health = *lane.health_ports.last().context("no health port")?;
    let (_, metrics) = Connection::open(health).await?.get("/metrics").await?;
    let connects = sum_of(
        &String::from_utf8_lossy(&metrics),
        "tidegate_stream_connects_total",
    );
    lane.stop()?;
    Ok(Idle {
        seconds,
        usage,
        connects,
    })
}

/// One pass over many narrow rows; then writes beside passes.
async fn pass(options: &Options) -> Result<Pass> {
    let lane = Lane::start(LaneKind::Pair, &options.data_dir, &Placement::default()).await?;
    let mut connection = Connection::open(lane.port).await?;
    shape::prepare(&mut connection).await?;
    connection
        .scalar("CREATE TABLE bench_narrow (id INTEGER PRIMARY KEY, a INTEGER, b TEXT)")
        .await?;
    let step = 50_000;
    for first in (0..options.pass_rows).step_by(step) {
        let last = first + step as u64 - 1;
        let sql = format!(
            "WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last}) \
             INSERT INTO bench_narrow SELECT i, i * 7, 'row ' || i FROM n"
        );
        connection.scalar(&sql).await?;
    }
    let started = Instant::now();
    converge(lane.port).await?;
    let seconds = started.elapsed().as_secs_f64();
    let without = measure(&lane, Shape::Insert, 16, 0, options).await?;
    let passes = tokio::spawn({
        let until = Instant::now() + Duration::from_secs_f64(options.seconds + WARMUP_SECONDS);
        let port = lane.port;
        async move {
            while Instant::now() < until {
                converge(port).await?;
            }
            anyhow::Ok(())
        }
    });
    let beside = measure(&lane, Shape::Insert, 16, 0, options).await?;
    passes.await??;
    lane.stop()?;
    Ok(Pass {
        rows: options.pass_rows,
        seconds,
        writes_without: without.load.rate,
        writes_beside: beside.load.rate,
    })
}

async fn converge(port: u16) -> Result<()> {
    let program = std::env::current_exe()?.with_file_name("tidegate");
    let url = format!("http://127.0.0.1:{port}");
    let output = tokio::process::Command::new(program)
        .args(["converge", "--url", &url, "--output", "json"])
        .output()
        .await?;
    ensure!(
        output.status.success(),
        "converge: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Adds up the samples of one metric.
fn sum_of(metrics: &str, name: &str) -> Option<u64> {
    let values: Vec<f64> = metrics
        .lines()
        .filter(|line| line.starts_with(name))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse().ok())
        .collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() as u64)
}

/// Median of 200 times 4 KiB written and fsynced, in microseconds.
fn fsync_floor(directory: &Path) -> Result<u64> {
    use std::io::{Seek, Write};
    let mut file = tempfile::tempfile_in(directory)?;
    let mut times = Vec::new();
    for _ in 0..200 {
        let started = Instant::now();
        file.rewind()?;
        file.write_all(&[7; 4_096])?;
        file.sync_data()?;
        times.push(started.elapsed().as_micros() as u64);
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

fn used_since(before: &[Usage], after: &[Usage]) -> Vec<Usage> {
    let both = before.iter().zip(after);
    both.map(|(before, after)| Usage {
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        memory_mib: after.memory_mib,
    })
    .collect()
}

/// Pins all threads of this process, and so the load, to these cores.
fn pin_self(cores: &str) -> Result<()> {
    let pid = std::process::id().to_string();
    let output = Command::new("taskset")
        .args(["-acp", cores, &pid])
        .output()?;
    ensure!(output.status.success(), "taskset: {output:?}");
    Ok(())
}

fn note(failures: &mut Vec<String>, part: &str, outcome: Result<()>) {
    if let Err(error) = outcome {
        eprintln!("  {part} failed: {error:#}");
        failures.push(format!("{part}: {error:#}"));
    }
}

/// A number that no other run has.
pub fn fresh_run() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn machine() -> Vec<(String, String)> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let model = read("/proc/cpuinfo").lines().find_map(|line| {
        Some(
            line.strip_prefix("model name")?
                .split_once(':')?
                .1
                .trim()
                .to_owned(),
        )
    });
    let memory = read("/proc/meminfo")
        .lines()
        .find_map(|line| Some(line.strip_prefix("MemTotal:")?.trim().to_owned()));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let fact = |name: &str, value: String| (name.to_owned(), value);
    vec![
        fact("processor", model.unwrap_or_default()),
        fact("cores", cores.to_string()),
        fact("memory", memory.unwrap_or_default()),
        fact(
            "kernel",
            read("/proc/sys/kernel/osrelease").trim().to_owned(),
        ),
        fact("load before", read("/proc/loadavg").trim().to_owned()),
    ]
}
