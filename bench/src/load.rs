//! Many clients at once, in closed or open loop.
//!
//! *Closed*: each client sends its next request when it has the answer to the last one. *Open*:
//! requests are due at fixed times whatever the server does, and latency counts from when a
//! request was due, so that a stall is paid for by every request it held up.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::http::Connection;
use crate::shape::{self, Shape};

/// Longest latency that is told from a longer one.
pub const LATENCY_US_MAX: u64 = 600_000_000;
/// Error messages kept from one run.
const ERRORS_NAMED_MAX: usize = 3;

/// One run of load.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Port of the client listener.
    pub port: u16,
    /// What is asked.
    pub shape: Shape,
    /// Clients, each with a connection of its own.
    pub clients: u64,
    /// Length of the measured part.
    pub seconds: f64,
    /// Load before the measured part.
    pub warmup_seconds: f64,
    /// Requests per second over all clients; closed loop if none.
    pub rate: Option<f64>,
    /// Number of the run; rows carry it.
    pub run: u64,
}

/// What a run measured. Latencies in microseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measurement {
    /// What was asked.
    pub shape: Shape,
    /// Clients.
    pub clients: u64,
    /// Length of the measured part.
    pub seconds: f64,
    /// Requests answered well and as expected.
    pub completed: u64,
    /// Requests with another end.
    pub errors: u64,
    /// A few of these.
    pub error_examples: Vec<String>,
    /// Completed per second.
    pub rate: f64,
    /// Median latency.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// 99.9th percentile.
    pub p999_us: u64,
    /// The slowest request.
    pub slowest_us: u64,
    /// Inserts acknowledged, warm-up included.
    pub inserts_acknowledged: u64,
    /// Rows found afterwards.
    pub rows_stored: u64,
}

/// What one client saw.
struct Tally {
    latencies: Histogram<u64>,
    completed: u64,
    errors: u64,
    examples: Vec<String>,
    inserts: u64,
    insert_errors: u64,
    ended: Instant,
}

#[derive(Clone, Copy)]
struct Times {
    started: Instant,
    measured_from: Instant,
    until: Instant,
}

/// Runs load and checks that every acknowledged row is stored.
pub async fn run(plan: Plan) -> Result<Measurement> {
    let started = Instant::now();
    let measured_from = started + Duration::from_secs_f64(plan.warmup_seconds);
    let times = Times {
        started,
        measured_from,
        until: measured_from + Duration::from_secs_f64(plan.seconds),
    };
    let mut clients = JoinSet::new();
    for client in 0..plan.clients {
        clients.spawn(client_loop(plan, client, times));
    }
    let mut total = Tally::new(measured_from);
    while let Some(tally) = clients.join_next().await {
        total.add(&tally??)?;
    }
    let mut connection = Connection::open(plan.port).await?;
    let rows = if total.inserts + total.insert_errors > 0 {
        shape::stored_rows(&mut connection, plan.run).await?
    } else {
        0
    };
    // An insert that was answered with an error or not at all may be stored or not.
    ensure!(
        (total.inserts..=total.inserts + total.insert_errors).contains(&rows),
        "{} inserts were acknowledged, {} failed, and {rows} rows are stored",
        total.inserts,
        total.insert_errors
    );
    Ok(total.measurement(plan, measured_from, rows))
}

async fn client_loop(plan: Plan, client: u64, times: Times) -> Result<Tally> {
    let mut connection = Connection::open(plan.port).await?;
    let mut tally = Tally::new(times.measured_from);
    let pause = plan.rate.map(|rate| plan.clients as f64 / rate);
    for number in 0.. {
        let request = plan.shape.request(plan.run, client, number);
        let due = match pause {
            Some(pause) => {
                let offset = pause * (number as f64 + client as f64 / plan.clients as f64);
                let due = times.started + Duration::from_secs_f64(offset);
                tokio::time::sleep_until(due.into()).await;
                due
            }
            None => Instant::now(),
        };
        if due >= times.until {
            break;
        }
        let reply = match &request.body {
            Some(body) => connection.post(request.path, body.clone()).await,
            None => connection.get(request.path).await,
        };
        let verified = reply.and_then(|(status, body)| request.verify(status, &body));
        let broken = verified.is_err();
        tally.note(due, times, verified, request.is_insert);
        if broken {
            connection = Connection::open(plan.port).await?;
        }
    }
    Ok(tally)
}

impl Tally {
    fn new(ended: Instant) -> Self {
        Self {
            latencies: Histogram::new_with_max(LATENCY_US_MAX, 3)
                .expect("three digits are allowed"),
            completed: 0,
            errors: 0,
            examples: Vec::new(),
            inserts: 0,
            insert_errors: 0,
            ended,
        }
    }

    fn note(&mut self, due: Instant, times: Times, verified: Result<()>, is_insert: bool) {
        let now = Instant::now();
        match (&verified, is_insert) {
            (Ok(()), true) => self.inserts += 1,
            (Err(_), true) => self.insert_errors += 1,
            _ => {}
        }
        if due < times.measured_from && verified.is_ok() {
            return;
        }
        self.ended = now;
        let micros = u64::try_from((now - due).as_micros()).unwrap_or(u64::MAX);
        self.latencies.saturating_record(micros);
        match verified {
            Ok(()) => self.completed += 1,
            Err(error) => {
                self.errors += 1;
                if self.examples.len() < ERRORS_NAMED_MAX {
                    self.examples.push(format!("{error:#}"));
                }
            }
        }
    }

    fn add(&mut self, other: &Self) -> Result<()> {
        self.latencies.add(&other.latencies)?;
        self.completed += other.completed;
        self.errors += other.errors;
        self.inserts += other.inserts;
        self.insert_errors += other.insert_errors;
        self.ended = self.ended.max(other.ended);
        let room = ERRORS_NAMED_MAX - self.examples.len();
        self.examples
            .extend(other.examples.iter().take(room).cloned());
        Ok(())
    }

    /// The rate counts up to the last answer, so that a hang at the end lowers it.
    fn measurement(self, plan: Plan, from: Instant, rows_stored: u64) -> Measurement {
        let seconds = (self.ended - from).as_secs_f64().max(plan.seconds);
        let at = |quantile| self.latencies.value_at_quantile(quantile);
        Measurement {
            shape: plan.shape,
            clients: plan.clients,
            seconds,
            completed: self.completed,
            errors: self.errors,
            rate: self.completed as f64 / seconds,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            slowest_us: self.latencies.max(),
            inserts_acknowledged: self.inserts,
            rows_stored,
            error_examples: self.examples,
        }
    }
}
