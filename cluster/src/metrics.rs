//! `/metrics`: OpenMetrics text, made at each scrape from the status value and the engine's
//! counters. Names and units are fixed; labels are bounded words and names of nodes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tidegate_engine::stats::Histogram;
use tidegate_engine::{SlotState, Stats};

use crate::health::Health;
use crate::readiness::{self, Check};
use crate::status::{NodeStatus, Role, State, Verdict};

/// Makes the text.
#[derive(Debug, Default)]
pub struct Metrics {
    insecure_listen: bool,
    transitions: Mutex<Transitions>,
}

/// Counts how often the node became ready and unready.
#[derive(Debug, Default)]
struct Transitions {
    ready: bool,
    to_ready: u64,
    to_unready: u64,
}

impl Metrics {
    /// `insecure_listen`: a listener is open outside loopback without TLS.
    pub fn new(insecure_listen: bool) -> Self {
        Self {
            insecure_listen,
            transitions: Mutex::default(),
        }
    }

    /// All metrics now.
    pub fn encode(&self, health: &Health) -> String {
        let status = health.status();
        let checks = readiness::checks(&status, &health.bounds, Instant::now());
        let (to_ready, to_unready) = self.observe(&checks);
        let scrape = Scrape {
            status,
            checks,
            to_ready,
            to_unready,
            stats: health.engine.get().map(|engine| engine.stats()),
            insecure_listen: self.insecure_listen,
        };
        let mut registry = Registry::with_prefix("tidegate");
        registry.register_collector(Box::new(scrape));
        let mut text = String::new();
        encode(&mut text, &registry).expect("a String takes everything");
        text
    }

    /// Notes whether the node is ready; called by the monitor too, so that a short change
    /// between two scrapes is counted. Gives the counts to ready and to unready.
    pub fn observe(&self, checks: &[Check]) -> (u64, u64) {
        let ready = checks.iter().all(Check::passes);
        let mut seen = self
            .transitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if ready != seen.ready {
            seen.ready = ready;
            match ready {
                true => seen.to_ready += 1,
                false => seen.to_unready += 1,
            }
        }
        (seen.to_ready, seen.to_unready)
    }
}

/// Everything one scrape tells.
#[derive(Debug)]
struct Scrape {
    status: NodeStatus,
    checks: Vec<Check>,
    to_ready: u64,
    to_unready: u64,
    stats: Option<Stats>,
    insecure_listen: bool,
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let mut out = Out(encoder);
        self.node(&mut out)?;
        self.replication(&mut out)?;
        match &self.stats {
            Some(stats) => engine(&mut out, stats),
            None => Ok(()),
        }
    }
}

impl Scrape {
    fn node(&self, out: &mut Out<'_>) -> Result<(), std::fmt::Error> {
        let status = &self.status;
        let build = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("engine_version", ENGINE_VERSION),
            ("protocol", "1"),
        ];
        out.gauges("build_info", "What this binary is", [(build.to_vec(), 1.0)])?;
        let roles = [Role::Primary, Role::Replica].map(|role| {
            let labels = vec![("role", role.as_str())];
            (labels, f64::from(u8::from(status.role == role)))
        });
        out.gauges("role", "1 for the role of this node", roles)?;
        out.gauge("epoch", "Epoch of the history", status.epoch as f64)?;
        let ready = self.checks.iter().map(|check| {
            let ok = f64::from(u8::from(check.outcome.is_ok()));
            (vec![("check", check.name)], ok)
        });
        out.gauges("ready", "1 for each check that holds", ready)?;
        let transitions = [
            (vec![("to", "ready")], self.to_ready),
            (vec![("to", "unready")], self.to_unready),
        ];
        out.counters("ready_transitions", "Changes of readiness", transitions)?;
        let disk = status.disk;
        out.gauge(
            "disk_free_bytes",
            "Free space for data",
            disk.free_bytes as f64,
        )?;
        out.gauge(
            "disk_total_bytes",
            "Size of the file system",
            disk.total_bytes as f64,
        )?;
        let insecure = f64::from(u8::from(self.insecure_listen));
        out.gauge(
            "insecure_listen",
            "1 when open to others without TLS",
            insecure,
        )
    }

    fn replication(&self, out: &mut Out<'_>) -> Result<(), std::fmt::Error> {
        let status = &self.status;
        out.gauge(
            "applied_seq",
            "Newest position this node holds",
            status.head.seq as f64,
        )?;
        let head = status.primary_head.unwrap_or(status.head);
        out.gauge(
            "head_seq",
            "Newest position of the primary",
            head.seq as f64,
        )?;
        if let Some(link) = &status.link {
            let accepted = (vec![("outcome", "accepted")], link.connects);
            out.counters("stream_connects", "Streams to the primary", [accepted])?;
        }
        let replicas = status.replica_list();
        let of = |value: fn(&crate::status::ReplicaStatus) -> f64| {
            let labelled = replicas
                .iter()
                .map(move |replica| (vec![("replica", replica.node.as_str())], value(replica)));
            labelled.collect::<Vec<_>>()
        };
        out.gauges(
            "replication_lag_seconds",
            "Age of the oldest change not applied",
            of(|r| r.lag.seconds),
        )?;
        out.gauges(
            "replication_lag_changes",
            "Changes not applied",
            of(|r| r.lag.changes as f64),
        )?;
        out.gauges(
            "replication_lag_bytes",
            "Bytes not applied",
            of(|r| r.lag.bytes as f64),
        )?;
        let diverged = |r: &crate::status::ReplicaStatus| {
            let verdict = r.proof.as_ref().map(|proof| proof.verdict);
            f64::from(u8::from(verdict == Some(Verdict::Diverged)))
        };
        out.gauges("diverged", "1 for a replica proven different", of(diverged))?;
        let held = |r: &crate::status::ReplicaStatus| match r.slot {
            Some(slot) if slot.state == SlotState::Active => head.seq.saturating_sub(slot.from_seq),
            _ => 0,
        };
        let held = replicas.iter().map(|replica| {
            let labels = vec![("replica", replica.node.as_str())];
            (labels, held(replica) as f64)
        });
        out.gauges("slot_held_changes", "Changes kept for each replica", held)?;
        let given_up = |r: &crate::status::ReplicaStatus| {
            let state = r.slot.map(|slot| slot.state);
            f64::from(u8::from(state == Some(SlotState::NeedsSnapshot)))
        };
        out.gauges(
            "slot_needs_snapshot",
            "1 for a replica that the log is not kept for",
            of(given_up),
        )?;
        let states = replicas.iter().flat_map(|replica| {
            State::ALL.iter().map(|state| {
                let labels = vec![
                    ("replica", replica.node.as_str()),
                    ("state", state.as_str()),
                ];
                (labels, f64::from(u8::from(replica.state == *state)))
            })
        });
        out.gauges("replica_state", "1 for the state of each replica", states)
    }
}

fn engine(out: &mut Out<'_>, stats: &Stats) -> Result<(), std::fmt::Error> {
    out.gauge(
        "wal_bytes",
        "Size of the write-ahead log",
        stats.wal_bytes as f64,
    )?;
    out.gauge(
        "log_records",
        "Changes that the log holds at most",
        stats.head.get().saturating_sub(stats.floor.get()) as f64,
    )?;
    out.gauge(
        "log_floor_seq",
        "Position from which the log is complete",
        stats.floor.get() as f64,
    )?;
    out.gauge(
        "database_bytes",
        "Size of the database file",
        stats.database_bytes as f64,
    )?;
    out.gauge(
        "write_queue_depth",
        "Writes that wait",
        stats.write_queue_depth as f64,
    )?;
    out.gauge(
        "read_queue_depth",
        "Reads that wait",
        stats.read_queue_depth as f64,
    )?;
    out.gauge(
        "open_transactions",
        "Interactive transactions",
        stats.open_transactions as f64,
    )?;
    let plain: Labels<'_> = vec![];
    out.counters(
        "uncaptured_writes",
        "Writes without a log row: always 0",
        [(plain.clone(), stats.uncaptured_writes)],
    )?;
    out.counters(
        "engine_panics",
        "Panics inside the engine, contained",
        [(plain, stats.engine_panics)],
    )?;
    let requests = stats
        .sql_requests
        .iter()
        .map(|((kind, outcome), count)| (vec![("kind", *kind), ("outcome", *outcome)], *count));
    out.counters("sql_requests", "Statements answered", requests)?;
    out.counters(
        "admission_rejected",
        "Requests turned away",
        by("reason", &stats.admission_rejected),
    )?;
    out.counters(
        "statements_refused",
        "Statements refused by the gate",
        by("reason", &stats.statements_refused),
    )?;
    out.counters(
        "transactions_ended",
        "Transactions ended by the node",
        by("reason", &stats.transactions_ended),
    )?;
    out.counters(
        "groups_rerun",
        "Group commits run again",
        by("cause", &stats.groups_rerun),
    )?;
    let checkpoints = [
        (vec![("outcome", "complete")], stats.checkpoints_complete),
        (
            vec![("outcome", "incomplete")],
            stats.checkpoints_incomplete,
        ),
    ];
    out.counters(
        "checkpoints",
        "Checkpoints of the write-ahead log",
        checkpoints,
    )?;
    let sql = stats.sql_seconds.iter();
    out.histograms(
        "sql_seconds",
        "From a session's call to its answer",
        sql.map(|(kind, h)| (vec![("kind", *kind)], h)),
    )?;
    out.histogram(
        "group_commit_size",
        "Statements in one commit",
        &stats.group_commit_size,
    )?;
    out.histogram(
        "commit_seconds",
        "Time of one COMMIT",
        &stats.commit_seconds,
    )?;
    out.histogram(
        "write_permit_wait_seconds",
        "Waits for the write permit",
        &stats.write_permit_wait_seconds,
    )?;
    out.histogram(
        "checkpoint_seconds",
        "Time readers were held",
        &stats.checkpoint_seconds,
    )
}

/// Version of the embedded engine; pinned in the workspace's manifest.
const ENGINE_VERSION: &str = "0.8.3";

type Labels<'a> = Vec<(&'static str, &'a str)>;

fn by<'a>(
    label: &'static str,
    counts: &'a BTreeMap<&'static str, u64>,
) -> impl Iterator<Item = (Labels<'a>, u64)> {
    counts
        .iter()
        .map(move |(word, count)| (vec![(label, *word)], *count))
}

/// Writes families of metrics.
struct Out<'a>(DescriptorEncoder<'a>);

impl Out<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: f64) -> Result<(), std::fmt::Error> {
        self.gauges(name, help, [(vec![], value)])
    }

    fn gauges<'l>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'l>, f64)>,
    ) -> Result<(), std::fmt::Error> {
        let values = values
            .into_iter()
            .map(|(labels, value)| (labels, ConstGauge::new(value)));
        self.family(name, help, MetricType::Gauge, values)
    }

    /// The text gets `_total` behind the name.
    fn counters<'l>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'l>, u64)>,
    ) -> Result<(), std::fmt::Error> {
        let values = values
            .into_iter()
            .map(|(labels, value)| (labels, ConstCounter::new(value)));
        self.family(name, help, MetricType::Counter, values)
    }

    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        value: &Histogram,
    ) -> Result<(), std::fmt::Error> {
        self.histograms(name, help, [(vec![], value)])
    }

    fn histograms<'l, 'h>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'l>, &'h Histogram)>,
    ) -> Result<(), std::fmt::Error> {
        let values = values
            .into_iter()
            .map(|(labels, value)| (labels, Snapshot(value)));
        self.family(name, help, MetricType::Histogram, values)
    }

    fn family<'l, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        values: impl IntoIterator<Item = (Labels<'l>, M)>,
    ) -> Result<(), std::fmt::Error> {
        let mut family = Some(self.0.encode_descriptor(name, help, None, kind)?);
        for (labels, value) in values {
            if labels.is_empty() {
                // The only value of its family.
                if let Some(family) = family.take() {
                    value.encode(family)?;
                }
            } else if let Some(family) = &mut family {
                value.encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// A histogram as the engine counted it.
struct Snapshot<'a>(&'a Histogram);

impl EncodeMetric for Snapshot<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let histogram = self.0;
        let bounds = histogram.bounds.iter().copied().chain([f64::MAX]);
        let buckets: Vec<(f64, u64)> = bounds.zip(histogram.counts.iter().copied()).collect();
        encoder.encode_histogram::<NoLabelSet>(histogram.sum, histogram.count(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
