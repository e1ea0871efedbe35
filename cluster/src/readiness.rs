//! Is this node ready? A pure decision over one [`NodeStatus`].
//!
//! Each check gives a detail when it holds and a reason when it does not; the same words go
//! to `/readyz?verbose`, logs and metrics. A missing number fails its check: silence is not
//! health. Comparisons are `<=`, so that a bound of zero can be met.

use std::time::{Duration, Instant};

use tidegate_engine::SlotState;
use tidegate_replica::retention;

use crate::status::{NodeStatus, Probe, ReplicaStatus, Role, State, Verdict};

/// Bounds that the checks compare with.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// A self-test older than this fails.
    pub probe_age_max: Duration,
    /// The same for the writer, which an interactive transaction may keep for its whole life.
    pub write_probe_age_max: Duration,
    /// A stream silent for longer than this is not alive.
    pub heartbeat_age_max: Duration,
    /// A proof older than this holds no longer.
    pub proof_age_max: Duration,
    /// Less free space than this fails.
    pub disk_free_min: u64,
    /// A replica that lacks more than half of this is told of: its slot will be given up.
    pub log_keep_rows: u64,
    /// The same for a replica that is away and lacks something.
    pub log_keep_age: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            probe_age_max: Duration::from_secs(10),
            write_probe_age_max: Duration::from_secs(90),
            heartbeat_age_max: Duration::from_secs(5),
            proof_age_max: Duration::from_secs(24 * 3600),
            disk_free_min: 64 << 20,
            log_keep_rows: retention::Limits::default().keep_rows,
            log_keep_age: retention::Limits::default().keep_age,
        }
    }
}

/// Lag that a caller of `/readyz` or `/replica` accepts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LagBound {
    /// `5s`, `250ms`.
    Seconds(f64),
    /// `500changes`.
    Changes(u64),
    /// `16MB`.
    Bytes(u64),
}

/// One check's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Its fixed name.
    pub name: &'static str,
    /// A detail, or the reason why it fails.
    pub outcome: Result<String, String>,
}

impl Check {
    /// True unless it makes the node unready. An alarm never does: taking traffic from a primary
    /// because of a replica that is away would help nobody.
    pub fn passes(&self) -> bool {
        self.outcome.is_ok() || self.name == ALARM
    }
}

/// The check that only tells.
const ALARM: &str = "log_retention";

/// Names of all checks, in the order in which they are told.
pub const CHECKS: [&str; 13] = [
    "engine_read",
    "engine_write",
    "capture",
    "role",
    "link",
    "schema",
    "apply",
    "lag",
    "convergence",
    "disk",
    "log_retention",
    "tls_cert",
    "draining",
];

impl LagBound {
    /// Reads `5s`, `500changes`, `16MB`.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |digits: &str| digits.trim().parse::<f64>().ok().filter(|n| *n >= 0.0);
        if let Some(digits) = text.strip_suffix("changes") {
            return digits.trim().parse().ok().map(Self::Changes);
        }
        for (unit, factor) in [("kB", 1e3), ("MB", 1e6), ("GB", 1e9)] {
            if let Some(digits) = text.strip_suffix(unit) {
                return number(digits).map(|n| Self::Bytes((n * factor) as u64));
            }
        }
        if let Some(digits) = text.strip_suffix("ms") {
            return number(digits).map(|n| Self::Seconds(n / 1e3));
        }
        number(text.strip_suffix('s')?).map(Self::Seconds)
    }

    /// True when the lag is within it.
    pub fn admits(self, lag: &crate::status::Lag) -> bool {
        match self {
            Self::Seconds(max) => lag.seconds <= max,
            Self::Changes(max) => lag.changes <= max,
            Self::Bytes(max) => lag.bytes <= max,
        }
    }
}

/// All checks of the node's role.
pub fn checks(status: &NodeStatus, bounds: &Bounds, now: Instant) -> Vec<Check> {
    let probe = |probe: &Probe| probe_outcome(probe, bounds.probe_age_max, now);
    let writer = |probe: &Probe| probe_outcome(probe, bounds.write_probe_age_max, now);
    let replica = status.role == Role::Replica;
    let of_primary = |outcome: Outcome| match replica {
        true => ok("not this node's business"),
        false => outcome,
    };
    let of_replica = |outcome: Outcome| match replica {
        true => outcome,
        false => ok("this node is the reference"),
    };
    let outcomes = [
        probe(&status.probes.engine_read),
        of_primary(writer(&status.probes.engine_write)),
        of_primary(probe(&status.probes.capture)),
        role(status),
        of_replica(link(status, bounds, now)),
        of_replica(schema(status)),
        of_replica(apply(status)),
        of_replica(lag(status, None)),
        of_replica(convergence(status, bounds, now)),
        disk(status, bounds),
        log_retention(status, bounds, now),
        ok("not in use"),
        draining(status),
    ];
    CHECKS
        .into_iter()
        .zip(outcomes)
        .map(|(name, outcome)| Check { name, outcome })
        .collect()
}

/// The lag check with a caller's own bound instead of the node's.
pub fn lag_check(status: &NodeStatus, bound: LagBound) -> Check {
    Check {
        name: "lag",
        outcome: match status.role {
            Role::Replica => lag(status, Some(bound)),
            _ => ok("this node is the reference"),
        },
    }
}

/// True when the loops turn and the storage answers. Never depends on peers or lag.
pub fn alive(status: &NodeStatus, now: Instant) -> Outcome {
    /// Longer than any statement may run, so that a busy node is not killed.
    const SILENCE_MAX: Duration = Duration::from_secs(60);
    let started = status.probes.engine_read.at.unwrap_or(status.since);
    let age = now.saturating_duration_since(started);
    if age <= SILENCE_MAX {
        ok("the storage answers")
    } else {
        Err(format!(
            "the storage has not answered for {:.0} s",
            age.as_secs_f64()
        ))
    }
}

/// Verbose text as Kubernetes writes it.
pub fn verbose(checks: &[Check], endpoint: &str, passed: bool) -> String {
    let mut text = String::new();
    for check in checks {
        text += &match &check.outcome {
            Ok(detail) => format!("[+]{} ok: {detail}\n", check.name),
            Err(reason) if check.passes() => {
                format!("[-]{} failed (an alarm only): {reason}\n", check.name)
            }
            Err(reason) => format!("[-]{} failed: {reason}\n", check.name),
        };
    }
    text + endpoint
        + if passed {
            " check passed\n"
        } else {
            " check failed\n"
        }
}

/// A detail or a reason.
pub type Outcome = Result<String, String>;

fn ok(detail: &str) -> Outcome {
    Ok(detail.to_owned())
}

fn probe_outcome(probe: &Probe, age_max: Duration, now: Instant) -> Outcome {
    let detail = probe.outcome.clone()?;
    let at = probe.at.ok_or("not tested yet")?;
    let age = now.saturating_duration_since(at);
    if age <= age_max {
        Ok(detail)
    } else {
        Err(format!("last answered {:.0} s ago", age.as_secs_f64()))
    }
}

fn role(status: &NodeStatus) -> Outcome {
    if !status.started {
        return Err("starting".to_owned());
    }
    match (status.role, status.state) {
        (Role::Unknown, _) => Err("not decided yet".to_owned()),
        (_, state @ (State::Fenced | State::ConfigConflict | State::IoError)) => {
            Err(format!("{}: {}", state.as_str(), status.detail))
        }
        (role, _) => Ok(format!("{} in epoch {}", role.as_str(), status.epoch)),
    }
}

fn link(status: &NodeStatus, bounds: &Bounds, now: Instant) -> Outcome {
    let link = status.link.as_ref().ok_or("no stream yet")?;
    if !link.attached {
        let why = link.error.as_deref().unwrap_or("no reason known");
        return Err(format!("not attached to {}: {why}", link.peer));
    }
    let age = now.saturating_duration_since(link.heartbeat);
    if age <= bounds.heartbeat_age_max {
        Ok(format!("attached to {}", link.peer))
    } else {
        Err(format!(
            "{} is silent for {:.1} s",
            link.peer,
            age.as_secs_f64()
        ))
    }
}

fn schema(status: &NodeStatus) -> Outcome {
    match status.reason {
        crate::status::Reason::Schema => Err(status.detail.clone()),
        _ => ok("follows the primary's"),
    }
}

fn apply(status: &NodeStatus) -> Outcome {
    match &status.stalled {
        Some(why) => Err(format!("stalled: {why}")),
        None => Ok(format!("applied up to {}", status.head.seq)),
    }
}

fn lag(status: &NodeStatus, bound: Option<LagBound>) -> Outcome {
    let lag = status.lag.ok_or("lag is not known")?;
    let text = format!("{} changes, {:.3} s behind", lag.changes, lag.seconds);
    let within = match bound {
        Some(bound) => bound.admits(&lag),
        None => matches!(
            status.state,
            State::Ready | State::Verifying | State::Draining
        ),
    };
    if within { Ok(text) } else { Err(text) }
}

fn convergence(status: &NodeStatus, bounds: &Bounds, now: Instant) -> Outcome {
    let proof = status.proof.as_ref().ok_or("not proven equal yet")?;
    let age = now.saturating_duration_since(proof.at);
    match proof.verdict {
        Verdict::Equal if age <= bounds.proof_age_max => Ok(format!(
            "equal at {} ({:.1} s ago)",
            proof.at_seq,
            age.as_secs_f64()
        )),
        Verdict::Equal => Err(format!("the proof is {:.0} s old", age.as_secs_f64())),
        verdict => Err(format!("{}: {}", verdict.as_str(), proof.detail)),
    }
}

fn disk(status: &NodeStatus, bounds: &Bounds) -> Outcome {
    if status.state == State::NoSpace {
        return Err("no space left".to_owned());
    }
    let free = status.disk.free_bytes;
    let text = format!("{} MiB free", free >> 20);
    if free >= bounds.disk_free_min {
        Ok(text)
    } else {
        Err(text)
    }
}

fn log_retention(status: &NodeStatus, bounds: &Bounds, now: Instant) -> Outcome {
    for replica in &status.replicas {
        if let Some(why) = endangered(replica, status.head.seq, bounds, now) {
            return Err(format!("{}: {why}", replica.node));
        }
    }
    Ok(format!("{} changes kept", status.log_records()))
}

/// Why a replica needs, or soon will need, a snapshot.
fn endangered(replica: &ReplicaStatus, head: u64, bounds: &Bounds, now: Instant) -> Option<String> {
    let slot = replica.slot?;
    if slot.state == SlotState::NeedsSnapshot {
        return Some("the log is not kept for it any more; it will need a snapshot".into());
    }
    let lacks = head.saturating_sub(slot.from_seq);
    if lacks > bounds.log_keep_rows / 2 {
        let most = bounds.log_keep_rows;
        return Some(format!("{lacks} changes are kept for it, {most} at most"));
    }
    let away = now.saturating_duration_since(replica.heartbeat);
    let is_away = replica.state == State::Disconnected && lacks > 0;
    (is_away && away > bounds.log_keep_age / 2).then(|| {
        let (hours, most) = (away.as_secs() / 3600, bounds.log_keep_age.as_secs() / 3600);
        format!("away for {hours} h; the log is kept for it for {most} h")
    })
}

fn draining(status: &NodeStatus) -> Outcome {
    if status.draining {
        Err("the node is shutting down".to_owned())
    } else {
        ok("no")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Lag, LinkStatus, Probes, Proof};

    fn primary() -> NodeStatus {
        let tested = || Probe::now(Ok("fine".into()));
        let mut status = NodeStatus::starting("n1", "c");
        status.started = true;
        status.role = Role::Primary;
        status.state = State::Ready;
        status.disk.free_bytes = 1 << 40;
        status.probes = Probes {
            engine_read: tested(),
            engine_write: tested(),
            capture: tested(),
        };
        status
    }

    fn replica() -> NodeStatus {
        let now = Instant::now();
        let mut status = primary();
        status.role = Role::Replica;
        status.link = Some(LinkStatus {
            peer: "http://n1:9070".into(),
            attached: true,
            heartbeat: now,
            connects: 1,
            error: None,
        });
        status.lag = Some(Lag::default());
        status.proof = Some(Proof {
            verdict: Verdict::Equal,
            at_seq: 5,
            at: now,
            detail: String::new(),
        });
        status
    }

    fn failing(status: &NodeStatus, now: Instant) -> Vec<&'static str> {
        checks(status, &Bounds::default(), now)
            .into_iter()
            .filter(|check| check.outcome.is_err())
            .map(|check| check.name)
            .collect()
    }

    #[test]
    fn a_healthy_primary_and_a_proven_replica_are_ready() {
        let now = Instant::now();
        assert_eq!(failing(&primary(), now), [""; 0]);
        assert_eq!(failing(&replica(), now), [""; 0]);
    }

    #[test]
    fn a_node_that_has_just_started_is_not() {
        let status = NodeStatus::starting("n1", "c");
        let failing = failing(&status, Instant::now());
        assert!(failing.contains(&"engine_read") && failing.contains(&"role"));
    }

    #[test]
    fn a_missing_proof_number_or_stream_fails() {
        let now = Instant::now();
        let mut status = replica();
        status.proof = None;
        assert_eq!(failing(&status, now), ["convergence"]);
        let mut status = replica();
        status.lag = None;
        assert_eq!(failing(&status, now), ["lag"]);
        let mut status = replica();
        status.link = None;
        assert_eq!(failing(&status, now), ["link"]);
    }

    #[test]
    fn doubt_difference_and_age_fail_the_convergence_check() {
        let now = Instant::now();
        for verdict in [Verdict::Diverged, Verdict::Inconclusive, Verdict::Running] {
            let mut status = replica();
            status.proof.as_mut().expect("set").verdict = verdict;
            assert_eq!(failing(&status, now), ["convergence"]);
        }
        let status = replica();
        let later = now + Duration::from_secs(25 * 3600);
        assert!(failing(&status, later).contains(&"convergence"));
    }

    #[test]
    fn silence_fails_the_link_and_the_probes_but_not_at_once() {
        let status = replica();
        let now = Instant::now();
        assert_eq!(failing(&status, now + Duration::from_secs(4)), [""; 0]);
        assert_eq!(failing(&status, now + Duration::from_secs(7)), ["link"]);
        assert!(alive(&status, now + Duration::from_secs(50)).is_ok());
        assert!(alive(&status, now + Duration::from_secs(70)).is_err());
    }

    #[test]
    fn lag_bounds_have_three_units_and_include_their_limit() {
        assert_eq!(LagBound::parse("5s"), Some(LagBound::Seconds(5.0)));
        assert_eq!(LagBound::parse("250ms"), Some(LagBound::Seconds(0.25)));
        assert_eq!(LagBound::parse("500changes"), Some(LagBound::Changes(500)));
        assert_eq!(LagBound::parse("16MB"), Some(LagBound::Bytes(16_000_000)));
        assert_eq!(LagBound::parse("many"), None);
        assert!(LagBound::Changes(0).admits(&Lag::default()));
        let mut status = replica();
        status.lag = Some(Lag {
            changes: 9,
            ..Lag::default()
        });
        assert!(lag_check(&status, LagBound::Changes(9)).outcome.is_ok());
        assert!(lag_check(&status, LagBound::Changes(8)).outcome.is_err());
    }

    #[test]
    fn verbose_text_looks_as_in_kubernetes() {
        let checks = [
            Check {
                name: "disk",
                outcome: Ok("12 MiB free".into()),
            },
            Check {
                name: "link",
                outcome: Err("no stream yet".into()),
            },
        ];
        let text = "[+]disk ok: 12 MiB free\n[-]link failed: no stream yet\nreadyz check failed\n";
        assert_eq!(verbose(&checks, "readyz", false), text);
    }

    fn follower(from_seq: u64, state: SlotState) -> ReplicaStatus {
        ReplicaStatus {
            node: "n2".into(),
            state: State::Disconnected,
            reason: crate::status::Reason::Network,
            received_seq: from_seq,
            applied_seq: from_seq,
            lag: Lag::default(),
            heartbeat: Instant::now(),
            proof: None,
            ready: false,
            passes: 0,
            pass_rows: None,
            slot: Some(crate::status::SlotStatus { state, from_seq }),
        }
    }

    #[test]
    fn a_log_that_grows_for_a_replica_is_an_alarm_and_never_makes_the_primary_unready() {
        let now = Instant::now();
        let bounds = Bounds {
            log_keep_rows: 1_000,
            log_keep_age: Duration::from_secs(7_200),
            ..Bounds::default()
        };
        let alarm = |from, state, head, at| {
            let mut status = primary();
            status.head.seq = head;
            status.replicas = vec![follower(from, state)];
            let checks = checks(&status, &bounds, at);
            // The probes of this status grow old, the alarm is looked at alone.
            let check = checks.into_iter().find(|c| c.name == "log_retention");
            let check = check.expect("a check");
            assert!(check.passes());
            check.outcome.is_err()
        };
        let active = SlotState::Active;
        assert!(!alarm(500, active, 1_000, now));
        assert!(alarm(500, active, 1_001, now));
        assert!(alarm(1_000, SlotState::NeedsSnapshot, 1_000, now));
        let later = now + Duration::from_secs(3_700);
        assert!(alarm(999, active, 1_000, later));
        assert!(!alarm(1_000, active, 1_000, later), "it lacks nothing");
        let failing = [Check {
            name: "log_retention",
            outcome: Err("n2: away".into()),
        }];
        let text = "[-]log_retention failed (an alarm only): n2: away\nreadyz check passed\n";
        assert_eq!(verbose(&failing, "readyz", true), text);
    }
}
