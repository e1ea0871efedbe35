//! Turns what replication knows into the node's status. Pure translations, and one task for
//! each role that applies them whenever something changed, and often enough that lag and
//! silence grow while nothing happens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::{Seq, SlotState};
use tidegate_replica::follower::SourceAddress;
use tidegate_replica::followers::{FollowerStatus, Followers};
use tidegate_replica::history::Refusal;
use tidegate_replica::proof::{self, PassReport};
use tidegate_replica::service::NodeFacts;
use tidegate_replica::state::{FollowerState, Phase};
use tidegate_replica::wire::ProofDescription;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::mounted::EngineSlot;
use crate::status::{
    Lag, LinkStatus, NodeStatus, Position, Proof, Reason, ReplicaStatus, Role, SlotStatus, State,
    StatusReceiver, StatusSender, Verdict,
};

/// Lag and silence are looked at this often.
const PERIOD: Duration = Duration::from_millis(100);

/// Bounds of readiness in time.
#[derive(Debug, Clone, Copy)]
pub struct LagBounds {
    /// A replica becomes ready at this lag or less.
    pub enter: Duration,
    /// It stays ready up to this lag,
    pub leave: Duration,
    /// and beyond it for this long.
    pub hold: Duration,
    /// Silence that is no lag yet.
    pub silence: Duration,
    /// A proof older than this does not count.
    pub proof_age_max: Duration,
}

impl Default for LagBounds {
    fn default() -> Self {
        Self {
            enter: Duration::from_secs(1),
            leave: Duration::from_secs(5),
            hold: Duration::from_secs(2),
            silence: Duration::from_secs(2),
            proof_age_max: Duration::from_secs(24 * 3600),
        }
    }
}

/// Keeps a replica from flapping: it enters at a narrow bound and leaves at a wide one, after
/// a while.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hysteresis {
    inside: bool,
    outside_since: Option<Instant>,
}

impl Hysteresis {
    /// Whether a replica with this lag counts as near enough.
    pub fn admit(&mut self, lag: Option<Duration>, bounds: &LagBounds, now: Instant) -> bool {
        let within = |bound: Duration| lag.is_some_and(|lag| lag <= bound);
        if within(if self.inside {
            bounds.leave
        } else {
            bounds.enter
        }) {
            self.inside = true;
            self.outside_since = None;
        } else if self.inside {
            let since = *self.outside_since.get_or_insert(now);
            self.inside = now.saturating_duration_since(since) < bounds.hold;
        }
        self.inside
    }
}

/// What a follower says of itself, in the words of the status.
pub fn of_follower(
    status: &mut NodeStatus,
    state: &FollowerState,
    source_url: &str,
    near: bool,
    bounds: &LagBounds,
    now: Instant,
) {
    let lag = state.lag(now, bounds.silence);
    status.role = Role::Replica;
    status.epoch = status.epoch.max(state.epoch.get());
    if let Some(source) = &state.source {
        status.primary = Some(source.to_string());
    }
    status.primary_head = Some(Position {
        seq: state.head.get().max(state.applied.get()),
        committed_ms: i64::try_from(state.head_committed_ms).unwrap_or(i64::MAX),
    });
    status.link = Some(LinkStatus {
        peer: source_url.to_owned(),
        attached: state.is_attached(),
        heartbeat: state.heard.unwrap_or(status.since),
        connects: state.connects,
        error: (!state.is_attached() && !state.detail.is_empty()).then(|| state.detail.clone()),
    });
    status.lag = lag.map(|lag| Lag {
        changes: state.changes_behind(),
        transactions: state.commits_behind,
        bytes: state.bytes_waiting,
        seconds: lag.as_secs_f64(),
    });
    status.proof = proof_of(&state.proof, bounds, now);
    status.passes = state.proof.passes;
    status.pass_rows = state.proof.running.as_ref().map(|pass| pass.rows);
    status.stalled = (state.phase == Phase::Stalled).then(|| state.detail.clone());
    let (next, reason) = state_of(state, status.proof.as_ref(), near);
    if !status.draining {
        status.state = next;
    }
    status.reason = reason;
    status.detail.clone_from(&state.detail);
}

fn state_of(state: &FollowerState, proof: Option<&Proof>, near: bool) -> (State, Reason) {
    let verdict = proof.map(|proof| proof.verdict);
    match state.phase {
        Phase::Starting => (State::Recovering, Reason::None),
        Phase::Snapshotting => (State::Snapshotting, Reason::SnapshotRequired),
        Phase::Refused(Refusal::Fenced) => (State::Fenced, Reason::History),
        Phase::Refused(Refusal::NotReady | Refusal::Protocol | Refusal::Invalid) => {
            (State::CatchingUp, Reason::Network)
        }
        Phase::Refused(_) | Phase::Forked => (State::ConfigConflict, Reason::History),
        Phase::Stalled => (State::Stalled, Reason::Apply),
        Phase::NoSpace => (State::NoSpace, Reason::Disk),
        Phase::IoError => (State::IoError, Reason::Disk),
        Phase::Stopped => (State::Draining, Reason::None),
        _ if verdict == Some(Verdict::Diverged) => (State::Diverged, Reason::None),
        Phase::Connecting => (State::CatchingUp, Reason::Network),
        Phase::CatchingUp | Phase::Following if verdict != Some(Verdict::Equal) => {
            match state.phase {
                Phase::Following => (State::Verifying, Reason::None),
                _ => (State::CatchingUp, Reason::None),
            }
        }
        Phase::CatchingUp | Phase::Following if near => (State::Ready, Reason::None),
        Phase::CatchingUp => (State::CatchingUp, Reason::None),
        Phase::Following => (State::Lagging, Reason::Overload),
    }
}

fn proof_of(proof: &proof::Proof, bounds: &LagBounds, now: Instant) -> Option<Proof> {
    if let Some(report) = &proof.diverged {
        return Some(told(report));
    }
    match (proof.check(now, bounds.proof_age_max), &proof.running) {
        (Ok(report), _) => Some(told(report)),
        (Err(why), Some(_)) => Some(Proof {
            verdict: Verdict::Running,
            at_seq: 0,
            at: now,
            detail: why,
        }),
        (Err(why), None) => proof.last.as_ref().map(|last| Proof {
            verdict: Verdict::Inconclusive,
            at_seq: last.at_seq.get(),
            at: last.ended,
            detail: why,
        }),
    }
}

/// A report in the words of the status, with the first rows that differ.
pub fn told(report: &PassReport) -> Proof {
    let mut detail = report.summary();
    if report.verdict == proof::Verdict::Diverged {
        for difference in report.differences.iter().take(DIFFERENCES_TOLD) {
            let row = &difference.row;
            let word = row.kind.word();
            detail += &format!("\n{} row {}: {word}", difference.table, row.rowid);
        }
        for range in report.unequal.iter().take(DIFFERENCES_TOLD) {
            if !range.text.is_empty() && !detail.contains(&range.text) {
                detail += &format!("\n{}", range.text);
            }
        }
    }
    Proof {
        verdict: match report.verdict {
            proof::Verdict::Equal => Verdict::Equal,
            proof::Verdict::Diverged => Verdict::Diverged,
            proof::Verdict::Inconclusive => Verdict::Inconclusive,
        },
        at_seq: report.at_seq.get(),
        at: report.ended,
        detail,
    }
}

/// Differing rows named in a status; the admin calls name more.
const DIFFERENCES_TOLD: usize = 10;

/// A follower as its primary sees it.
pub fn of_replica(
    node: &str,
    follower: &FollowerStatus,
    head: Seq,
    bounds: &LagBounds,
    now: Instant,
) -> ReplicaStatus {
    let silence = now.saturating_duration_since(follower.heard);
    let changes = head.get().saturating_sub(follower.applied.get());
    let taken = now.saturating_duration_since(follower.lag_taken);
    let mut lag = Duration::from_millis(follower.lag_ms);
    if changes > 0 {
        lag += taken;
    }
    if silence > bounds.silence {
        lag = lag.max(silence);
    }
    let proof = follower.report.as_ref().map(told);
    let verdict = proof.as_ref().map(|proof| proof.verdict);
    let slot = follower.slot.map(|held| SlotStatus {
        state: held.state,
        from_seq: held.from.get(),
    });
    let given_up = slot.is_some_and(|slot| slot.state == SlotState::NeedsSnapshot);
    let (state, reason) = match (follower.connected, verdict) {
        (false, _) if given_up => (State::Disconnected, Reason::SnapshotRequired),
        (false, _) => (State::Disconnected, Reason::Network),
        (true, Some(Verdict::Diverged)) => (State::Diverged, Reason::None),
        (true, Some(Verdict::Equal)) if lag <= bounds.leave => (State::Ready, Reason::None),
        (true, Some(Verdict::Equal)) => (State::Lagging, Reason::Overload),
        (true, _) if lag > bounds.leave => (State::CatchingUp, Reason::None),
        (true, _) => (State::Verifying, Reason::None),
    };
    ReplicaStatus {
        node: node.to_owned(),
        state,
        reason,
        received_seq: follower.received.get(),
        applied_seq: follower.applied.get(),
        lag: Lag {
            changes,
            transactions: follower.lag_commits,
            bytes: follower.bytes_under_way,
            seconds: lag.as_secs_f64(),
        },
        heartbeat: follower.heard,
        proof,
        ready: state == State::Ready,
        passes: follower.passes,
        pass_rows: follower.pass.as_ref().map(|pass| pass.rows),
        slot,
    }
}

/// Keeps a replica's status.
pub async fn watch_follower(
    mut state: watch::Receiver<FollowerState>,
    source: SourceAddress,
    slot: EngineSlot,
    status: StatusSender,
    bounds: LagBounds,
    stopping: CancellationToken,
) -> Result<(), std::convert::Infallible> {
    let mut near = Hysteresis::default();
    loop {
        let now = Instant::now();
        let snapshot = state.borrow_and_update().clone();
        if !snapshot.is_attached() {
            // What it was before says nothing of what it has missed: the narrow bound again.
            near = Hysteresis::default();
        }
        let admitted = near.admit(snapshot.lag(now, bounds.silence), &bounds, now);
        let identity = match status.borrow().cluster_id.is_empty() {
            true => slot
                .get()
                .and_then(|engine| crate::identity::Identity::read(&engine).ok()),
            false => None,
        };
        let source_url = source.borrow().clone().unwrap_or_default();
        status.send_modify(|status| {
            if let Some(identity) = identity {
                status.cluster_id = identity.cluster_id;
            }
            of_follower(status, &snapshot, &source_url, admitted, &bounds, now);
        });
        tokio::select! {
            changed = state.changed() => if changed.is_err() { stopping.cancelled().await },
            () = tokio::time::sleep(PERIOD) => {}
            () = stopping.cancelled() => return Ok(()),
        }
    }
}

/// Keeps a primary's view of its followers.
pub async fn watch_followers(
    followers: Arc<Followers>,
    slot: EngineSlot,
    status: StatusSender,
    bounds: LagBounds,
    stopping: CancellationToken,
) -> Result<(), std::convert::Infallible> {
    let mut register = followers.status();
    loop {
        let now = Instant::now();
        let head = slot
            .get()
            .map_or(Seq::ZERO, |engine| engine.head().borrow().seq);
        let replicas: Vec<ReplicaStatus> = register
            .borrow_and_update()
            .iter()
            .map(|(node, follower)| of_replica(node.as_str(), follower, head, &bounds, now))
            .collect();
        status.send_modify(|status| status.replicas = replicas);
        tokio::select! {
            _ = register.changed() => {}
            () = stopping.cancelled() => return Ok(()),
        }
        // A busy stream changes the register for each batch; people need less.
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            () = stopping.cancelled() => return Ok(()),
        }
    }
}

/// Keeps what the peer listener says of this node.
pub async fn tell_peers(
    mut status: StatusReceiver,
    facts: watch::Sender<NodeFacts>,
    stopping: CancellationToken,
) -> Result<(), std::convert::Infallible> {
    loop {
        facts.send_replace(facts_of(&status.borrow_and_update()));
        tokio::select! {
            _ = status.changed() => {}
            () = stopping.cancelled() => return Ok(()),
        }
    }
}

fn facts_of(status: &NodeStatus) -> NodeFacts {
    let proof = status.proof.as_ref().map(|proof| ProofDescription {
        verdict: match proof.verdict {
            Verdict::Equal => Some(proof::Verdict::Equal),
            Verdict::Diverged => Some(proof::Verdict::Diverged),
            Verdict::Inconclusive => Some(proof::Verdict::Inconclusive),
            Verdict::Running => None,
        },
        at_seq: Seq::new(proof.at_seq),
        age_ms: u64::try_from(proof.at.elapsed().as_millis()).unwrap_or(u64::MAX),
        valid: proof.verdict == Verdict::Equal,
        text: proof.detail.clone(),
    });
    NodeFacts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        role: status.role.as_str().to_owned(),
        state: status.state.as_str().to_owned(),
        reason: status.reason.as_str().to_owned(),
        detail: status.detail.clone(),
        source: None,
        is_proven: match status.role {
            Role::Primary => status.is_proven_primary,
            Role::Unknown => false,
            Role::Replica => proof.as_ref().is_some_and(|p| p.valid),
        },
        proof,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_enters_at_the_narrow_bound_and_leaves_at_the_wide_one_after_a_while() {
        let bounds = LagBounds::default();
        let mut near = Hysteresis::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let lag = |ms| Some(Duration::from_millis(ms));
        assert!(!near.admit(None, &bounds, at(0)), "never heard is not near");
        assert!(!near.admit(lag(1_001), &bounds, at(0)));
        assert!(near.admit(lag(1_000), &bounds, at(0)));
        assert!(near.admit(lag(5_000), &bounds, at(10)));
        assert!(
            near.admit(lag(5_001), &bounds, at(20)),
            "it is held for a while"
        );
        assert!(near.admit(lag(900), &bounds, at(1_000)), "and recovers");
        assert!(near.admit(lag(9_000), &bounds, at(2_000)));
        assert!(near.admit(lag(9_000), &bounds, at(3_999)));
        assert!(!near.admit(lag(9_000), &bounds, at(4_000)));
        assert!(
            !near.admit(lag(2_000), &bounds, at(4_001)),
            "the narrow bound again"
        );
    }

    #[test]
    fn doubt_is_not_readiness() {
        let mut state = FollowerState::starting();
        state.phase = Phase::Following;
        state.heard = Some(Instant::now());
        assert_eq!(state_of(&state, None, true).0, State::Verifying);
        let proof = |verdict| Proof {
            verdict,
            at_seq: 1,
            at: Instant::now(),
            detail: String::new(),
        };
        let with = |verdict| state_of(&state, Some(&proof(verdict)), true).0;
        assert_eq!(with(Verdict::Inconclusive), State::Verifying);
        assert_eq!(with(Verdict::Running), State::Verifying);
        assert_eq!(with(Verdict::Diverged), State::Diverged);
        assert_eq!(with(Verdict::Equal), State::Ready);
        let far = state_of(&state, Some(&proof(Verdict::Equal)), false).0;
        assert_eq!(far, State::Lagging);
    }
}
