//! The monitor: tests the node once a second and writes what it finds into the status.
//!
//! A self-test that does not come back leaves its earlier result to age, and age is what
//! fails its check: a slow disk makes a node unready, an overloaded one stays ready.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::{Engine, Error, Params, disk};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::health::Health;
use crate::readiness;
use crate::status::{Disk, Probe, Role, StatusSender};

const PERIOD: Duration = Duration::from_secs(1);

/// Runs until the node has stopped.
pub async fn run(
    health: Arc<Health>,
    status: StatusSender,
    data_dir: PathBuf,
    stopping: CancellationToken,
) -> Result<(), std::convert::Infallible> {
    let mut read = Ongoing::default();
    let mut write = Ongoing::default();
    let mut tick = tokio::time::interval(PERIOD);
    let mut ready: Option<bool> = None;
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = health.test_now.notified() => {}
            () = stopping.cancelled() => return Ok(()),
        }
        if let Some(engine) = health.engine.get() {
            let (reader, writer) = (engine.clone(), engine.clone());
            read.start(|| tokio::spawn(test_read(reader)));
            if status.borrow().role == Role::Primary {
                write.start(|| tokio::task::spawn_blocking(move || test_write(&writer)));
            }
            // The first round is waited for, so that a node need not wait a second to be ready.
            tokio::time::timeout(PERIOD / 2, read.settle()).await.ok();
            tokio::time::timeout(PERIOD / 2, write.settle()).await.ok();
        }
        let space = disk::space(&data_dir).ok();
        status.send_modify(|status| {
            if let Some(probe) = read.take() {
                status.probes.engine_read = probe;
            }
            if let Some(probe) = write.take() {
                status.probes.engine_write = probe;
            }
            if let Some(engine) = health.engine.get() {
                status.probes.capture = test_capture(&engine, status.role);
            }
            if let Some(space) = space {
                status.disk = Disk {
                    free_bytes: space.free_bytes,
                    total_bytes: space.total_bytes,
                };
            }
        });
        tell_change(&health, &mut ready);
    }
}

/// Logs when the node becomes ready or unready, once, with the reason.
fn tell_change(health: &Health, ready: &mut Option<bool>) {
    let checks = readiness::checks(&health.status(), &health.bounds, Instant::now());
    health.metrics.observe(&checks);
    let failing: Vec<String> = checks
        .iter()
        .filter(|check| !check.passes())
        .filter_map(|check| Some(format!("{}: {}", check.name, check.outcome.as_ref().err()?)))
        .collect();
    let now = failing.is_empty();
    if *ready == Some(now) {
        return;
    }
    *ready = Some(now);
    match now {
        true => tracing::info!("ready"),
        false => tracing::info!(failing = failing.join("; "), "not ready"),
    }
}

/// A test that runs beside the monitor; a new one starts only when the last has ended.
#[derive(Default)]
struct Ongoing {
    running: Option<JoinHandle<Probe>>,
    done: Option<Probe>,
}

impl Ongoing {
    fn start(&mut self, spawn: impl FnOnce() -> JoinHandle<Probe>) {
        if self.running.is_none() {
            self.running = Some(spawn());
        }
    }

    async fn settle(&mut self) {
        if let Some(running) = &mut self.running {
            let probe = running.await;
            self.running = None;
            self.done = Some(probe.unwrap_or_else(|e| Probe::now(Err(e.to_string()))));
        }
    }

    fn take(&mut self) -> Option<Probe> {
        self.done.take()
    }
}

async fn test_read(engine: Arc<Engine>) -> Probe {
    let started = Instant::now();
    let mut session = engine.session();
    let answer = session.execute("SELECT 1", Params::default(), true).await;
    Probe::now(outcome(answer.map(drop), started))
}

fn test_write(engine: &Engine) -> Probe {
    let started = Instant::now();
    Probe::now(outcome(engine.with_permit(|_| Ok(())), started))
}

/// A full queue is no fault of the storage.
fn outcome(answer: Result<(), Error>, started: Instant) -> Result<String, String> {
    let ms = started.elapsed().as_secs_f64() * 1e3;
    match answer {
        Ok(()) => Ok(format!("answered in {ms:.1} ms")),
        Err(Error::Overloaded(why)) => Ok(format!("busy: {why}")),
        Err(error) => Err(error.to_string()),
    }
}

fn test_capture(engine: &Engine, role: Role) -> Probe {
    Probe::now(match (role, engine.stats().uncaptured_writes) {
        (Role::Primary, 0) => Ok("every write left its trace".to_owned()),
        (Role::Primary, n) => Err(format!("{n} writes left no trace in the log")),
        _ => Err("not a primary".to_owned()),
    })
}
