//! What a node knows of itself, as one value.
//!
//! The daemon keeps a [`NodeStatus`] in a `watch` and everybody else reads it: readiness,
//! `/status`, `/lag`, metrics, the client listener (for the epoch in batons). States and
//! reasons are one list, in lower case wherever they appear.

use std::time::Instant;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tidegate_engine::SlotState;
use tokio::sync::watch;

/// Everything a node knows of itself at one moment.
#[derive(Debug, Clone)]
pub struct NodeStatus {
    /// Name of this node.
    pub node: String,
    /// Name of the cluster, for people.
    pub cluster_name: String,
    /// The cluster's id; empty before bootstrap.
    pub cluster_id: String,
    /// What this node is.
    pub role: Role,
    /// Epoch of the newest opening it has seen.
    pub epoch: u64,
    /// Name of the primary, when known.
    pub primary: Option<String>,
    /// Its state and why.
    pub state: State,
    /// Why it is in that state.
    pub reason: Reason,
    /// A sentence for people.
    pub detail: String,
    /// Configuration, lock, local recovery and listeners are done.
    pub started: bool,
    /// Shutdown or drain has begun.
    pub draining: bool,
    /// Newest committed position of this node.
    pub head: Position,
    /// The position from which its log is complete.
    pub log_floor: u64,
    /// A replica's view of the primary's head.
    pub primary_head: Option<Position>,
    /// On a primary: the replicas it knows.
    pub replicas: Vec<ReplicaStatus>,
    /// On a replica: its stream.
    pub link: Option<LinkStatus>,
    /// On a replica: how far behind it is.
    pub lag: Option<Lag>,
    /// On a replica: the last verdict of the convergence gate.
    pub proof: Option<Proof>,
    /// On a replica: convergence passes that ended.
    pub passes: u64,
    /// On a replica: rows compared by the pass under way.
    pub pass_rows: Option<u64>,
    /// On a replica: why applying stopped, if it did.
    pub stalled: Option<String>,
    /// On a primary: it needs no proof, because it began its epoch's rows itself or held a valid
    /// proof when it was promoted. Followers keep theirs then.
    pub is_proven_primary: bool,
    /// The other nodes.
    pub peers: Vec<PeerStatus>,
    /// Self-tests.
    pub probes: Probes,
    /// Space of the data directory's file system.
    pub disk: Disk,
    /// When the process started.
    pub since: Instant,
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Not decided yet.
    Unknown,
    /// Takes writes.
    Primary,
    /// Follows.
    Replica,
}

/// The one list of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "the words are their documentation; see docs/glossary.md"
)]
pub enum State {
    Starting,
    Recovering,
    Snapshotting,
    CatchingUp,
    Verifying,
    Ready,
    Lagging,
    Draining,
    Disconnected,
    Diverged,
    Fenced,
    Stalled,
    NoSpace,
    IoError,
    ConfigConflict,
}

/// Why a node is in its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "the words are their documentation; see docs/glossary.md"
)]
pub enum Reason {
    None,
    Network,
    Apply,
    SnapshotRequired,
    Disk,
    Schema,
    History,
    Overload,
}

/// A position with the time of its commit on the primary's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Position {
    /// The position.
    pub seq: u64,
    /// Milliseconds since 1970; zero when nothing was committed.
    pub committed_ms: i64,
}

/// How far a replica is behind. Never negative.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Lag {
    /// Changes not applied yet.
    pub changes: u64,
    /// Transactions not applied yet.
    pub transactions: u64,
    /// Bytes sent but not applied.
    pub bytes: u64,
    /// Age of the oldest change not applied, on the primary's clock.
    pub seconds: f64,
}

/// A replica as the primary sees it.
#[derive(Debug, Clone, Serialize)]
pub struct ReplicaStatus {
    /// Its name.
    pub node: String,
    /// Its state.
    pub state: State,
    /// Why.
    pub reason: Reason,
    /// Received, perhaps not applied.
    pub received_seq: u64,
    /// Applied durably.
    pub applied_seq: u64,
    /// How far behind.
    pub lag: Lag,
    /// Since its last sign of life.
    #[serde(rename = "heartbeat_age_seconds", serialize_with = "age")]
    pub heartbeat: Instant,
    /// Its last verdict.
    pub proof: Option<Proof>,
    /// Whether it reports ready.
    pub ready: bool,
    /// Convergence passes that ended.
    pub passes: u64,
    /// Rows compared by the pass under way.
    pub pass_rows: Option<u64>,
    /// What of the log is kept for it, as its primary knows.
    pub slot: Option<SlotStatus>,
}

/// What of the log is kept for a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SlotStatus {
    /// `active`, or `needs_snapshot` when it is kept no longer.
    #[serde(serialize_with = "slot_state")]
    pub state: SlotState,
    /// Everything after this position is kept.
    pub from_seq: u64,
}

/// Another node, as this one sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeerStatus {
    /// Its name, from itself or from the configuration.
    pub node: Option<String>,
    /// Its peer address.
    pub url: String,
    /// It answered when it was last asked.
    pub reachable: bool,
    /// What it says it is.
    pub role: Option<String>,
    /// The state it says it is in.
    pub state: Option<String>,
    /// The epoch of its history.
    pub epoch: u64,
    /// The end of its log.
    pub head_seq: u64,
    /// What is wrong with it, or why it was not reached.
    pub problem: Option<String>,
}

/// A replica's stream.
#[derive(Debug, Clone, Serialize)]
pub struct LinkStatus {
    /// Whom it follows.
    pub peer: String,
    /// Whether the stream is attached.
    pub attached: bool,
    /// Since the last message.
    #[serde(rename = "heartbeat_age_seconds", serialize_with = "age")]
    pub heartbeat: Instant,
    /// Streams opened since the start.
    pub connects: u64,
    /// The last reason why there is none.
    pub error: Option<String>,
}

/// The last verdict of the convergence gate.
#[derive(Debug, Clone, Serialize)]
pub struct Proof {
    /// The verdict.
    pub verdict: Verdict,
    /// Where both sides were compared.
    pub at_seq: u64,
    /// Since then.
    #[serde(rename = "age_seconds", serialize_with = "age")]
    pub at: Instant,
    /// What differs, or why there is no verdict.
    pub detail: String,
}

/// What a pass found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Both sides hold the same.
    Equal,
    /// They differ.
    Diverged,
    /// It could not be found out; not ready.
    Inconclusive,
    /// A pass is under way and no earlier verdict holds.
    Running,
}

/// Results of self-tests.
#[derive(Debug, Clone, Default)]
pub struct Probes {
    /// A read through the reader threads.
    pub engine_read: Probe,
    /// The writer thread answers.
    pub engine_write: Probe,
    /// Every write so far left its trace in the log.
    pub capture: Probe,
}

/// One self-test.
#[derive(Debug, Clone)]
pub struct Probe {
    /// What it found: a detail, or what is wrong.
    pub outcome: Result<String, String>,
    /// When it last ran; `None` before the first time.
    pub at: Option<Instant>,
}

/// Space of a file system.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Disk {
    /// Free for this process.
    pub free_bytes: u64,
    /// In all.
    pub total_bytes: u64,
}

/// A handle to read the status.
pub type StatusReceiver = watch::Receiver<NodeStatus>;
/// The daemon's handle to change it.
pub type StatusSender = watch::Sender<NodeStatus>;

impl NodeStatus {
    /// Of a node that has just started.
    pub fn starting(node: &str, cluster_name: &str) -> Self {
        Self {
            node: node.to_owned(),
            cluster_name: cluster_name.to_owned(),
            cluster_id: String::new(),
            role: Role::Unknown,
            epoch: 0,
            primary: None,
            state: State::Starting,
            reason: Reason::None,
            detail: "the process has started".to_owned(),
            started: false,
            draining: false,
            head: Position::default(),
            log_floor: 0,
            primary_head: None,
            replicas: Vec::new(),
            link: None,
            lag: None,
            proof: None,
            passes: 0,
            pass_rows: None,
            stalled: None,
            is_proven_primary: true,
            peers: Vec::new(),
            probes: Probes::default(),
            disk: Disk::default(),
            since: Instant::now(),
        }
    }

    /// What `/lag` answers: the primary's view of its replicas, or the replica's of itself.
    pub fn lag_json(&self) -> Value {
        json!({
            "cluster_id": self.cluster_id,
            "epoch": self.epoch,
            "primary": self.primary,
            "head": self.primary_head.unwrap_or(self.head),
            "replicas": self.replica_list(),
        })
    }

    /// The replicas this node can speak of: a replica speaks of itself.
    pub fn replica_list(&self) -> Vec<ReplicaStatus> {
        match (&self.link, self.role) {
            (Some(link), Role::Replica) => vec![ReplicaStatus {
                node: self.node.clone(),
                state: self.state,
                reason: self.reason,
                received_seq: self.head.seq,
                applied_seq: self.head.seq,
                lag: self.lag.unwrap_or_default(),
                heartbeat: link.heartbeat,
                proof: self.proof.clone(),
                ready: self.state == State::Ready,
                passes: self.passes,
                pass_rows: self.pass_rows,
                slot: None,
            }],
            _ => self.replicas.clone(),
        }
    }

    /// Changes that the log holds at most: on a replica it is compacted.
    pub fn log_records(&self) -> u64 {
        self.head.seq.saturating_sub(self.log_floor)
    }

    /// What `/status` answers.
    pub fn json(&self) -> Value {
        let mut all = self.lag_json();
        let own = json!({
            "node": self.node,
            "cluster_name": self.cluster_name,
            "role": self.role,
            "state": self.state,
            "reason": self.reason,
            "detail": self.detail,
            "started": self.started,
            "draining": self.draining,
            "applied_seq": self.head.seq,
            "log": {"floor_seq": self.log_floor, "records": self.log_records()},
            "lag": self.lag,
            "link": self.link,
            "proof": self.proof,
            "stalled": self.stalled,
            "peers": self.peers,
            "disk": self.disk,
            "uptime_seconds": seconds(self.since),
            "version": env!("CARGO_PKG_VERSION"),
        });
        let (Value::Object(all_fields), Value::Object(own)) = (&mut all, own) else {
            unreachable!("both are objects");
        };
        all_fields.extend(own);
        all
    }
}

impl Role {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Primary => "primary",
            Self::Replica => "replica",
        }
    }
}

impl State {
    /// All of them, in order.
    pub const ALL: [Self; 15] = [
        Self::Starting,
        Self::Recovering,
        Self::Snapshotting,
        Self::CatchingUp,
        Self::Verifying,
        Self::Ready,
        Self::Lagging,
        Self::Draining,
        Self::Disconnected,
        Self::Diverged,
        Self::Fenced,
        Self::Stalled,
        Self::NoSpace,
        Self::IoError,
        Self::ConfigConflict,
    ];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Recovering => "recovering",
            Self::Snapshotting => "snapshotting",
            Self::CatchingUp => "catching_up",
            Self::Verifying => "verifying",
            Self::Ready => "ready",
            Self::Lagging => "lagging",
            Self::Draining => "draining",
            Self::Disconnected => "disconnected",
            Self::Diverged => "diverged",
            Self::Fenced => "fenced",
            Self::Stalled => "stalled",
            Self::NoSpace => "no_space",
            Self::IoError => "io_error",
            Self::ConfigConflict => "config_conflict",
        }
    }

    /// States that only an operator, a repair or a snapshot ends.
    pub fn is_sticky(self) -> bool {
        matches!(
            self,
            Self::Diverged
                | Self::Fenced
                | Self::Stalled
                | Self::NoSpace
                | Self::IoError
                | Self::ConfigConflict
        )
    }
}

impl Reason {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Network => "network",
            Self::Apply => "apply",
            Self::SnapshotRequired => "snapshot_required",
            Self::Disk => "disk",
            Self::Schema => "schema",
            Self::History => "history",
            Self::Overload => "overload",
        }
    }
}

impl Verdict {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Diverged => "diverged",
            Self::Inconclusive => "inconclusive",
            Self::Running => "running",
        }
    }
}

impl Probe {
    /// A test that just ran.
    pub fn now(outcome: Result<String, String>) -> Self {
        Self {
            outcome,
            at: Some(Instant::now()),
        }
    }
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            outcome: Err("not tested yet".to_owned()),
            at: None,
        }
    }
}

fn slot_state<S: Serializer>(state: &SlotState, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.as_str())
}

fn age<S: Serializer>(at: &Instant, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(seconds(*at))
}

/// Seconds since then, in milliseconds' precision.
fn seconds(since: Instant) -> f64 {
    (since.elapsed().as_secs_f64() * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_same_in_json_and_in_text() {
        for state in State::ALL {
            assert_eq!(json!(state), json!(state.as_str()));
        }
        assert_eq!(json!(Reason::SnapshotRequired), "snapshot_required");
        assert_eq!(json!(Role::Primary), Role::Primary.as_str());
        assert_eq!(json!(Verdict::Inconclusive), "inconclusive");
    }

    #[test]
    fn a_replica_speaks_of_itself() {
        let mut status = NodeStatus::starting("n2", "c");
        assert_eq!(status.lag_json()["replicas"], json!([]));
        status.role = Role::Replica;
        status.link = Some(LinkStatus {
            peer: "http://n1:9070".into(),
            attached: true,
            heartbeat: Instant::now(),
            connects: 1,
            error: None,
        });
        let json = status.json();
        assert_eq!(json["replicas"][0]["node"], "n2");
        assert_eq!(json["state"], "starting");
    }
}
