//! Verdicts by example, and against a model that keeps whole logs.

use proptest::prelude::*;

use super::*;

const WRITER: SourceFacts = SourceFacts {
    floor: Seq::ZERO,
    may_write: true,
};
const RELAY: SourceFacts = SourceFacts {
    floor: Seq::ZERO,
    may_write: false,
};

fn opening(epoch: u64, nonce: u8, first_seq: u64) -> Opening {
    Opening {
        epoch: Epoch::new(epoch),
        nonce: Nonce::new([nonce; 16]),
        first_seq: Seq::new(first_seq),
        node: "n1".into(),
        opened_ms: 0,
        why: "start".into(),
    }
}

/// `(epoch, nonce, first seq)` for each opening.
fn standing(openings: &[(u64, u8, u64)], seq: u64) -> Standing {
    let openings = openings.iter().map(|&(e, n, s)| opening(e, n, s)).collect();
    Standing {
        cluster: Some(ClusterId::from_bytes([1; 16])),
        history: History::new(openings).unwrap(),
        seq: Seq::new(seq),
    }
}

fn empty() -> Standing {
    Standing {
        cluster: None,
        history: History::default(),
        seq: Seq::ZERO,
    }
}

fn snapshot_from(fork: u64) -> Admission {
    Admission::SnapshotRequired(SnapshotReason::Forked {
        fork: Some(Seq::new(fork)),
    })
}

const BELOW_FLOOR: Admission = Admission::SnapshotRequired(SnapshotReason::BelowFloor);

#[test]
fn a_position_on_the_history_is_accepted() {
    let source = standing(&[(1, 1, 1), (1, 2, 50)], 100);
    for seq in [1, 49] {
        let follower = standing(&[(1, 1, 1)], seq);
        assert_eq!(admit(&source, WRITER, &follower), Admission::Accepted);
    }
    for seq in [50, 100] {
        let follower = standing(&[(1, 1, 1), (1, 2, 50)], seq);
        assert_eq!(admit(&source, WRITER, &follower), Admission::Accepted);
    }
}

#[test]
fn an_empty_node_is_accepted_only_where_the_log_reaches_back_to_the_beginning() {
    let source = standing(&[(1, 1, 1)], 9);
    assert_eq!(admit(&source, WRITER, &empty()), Admission::Accepted);
    let floor = Seq::new(1);
    let facts = SourceFacts { floor, ..WRITER };
    assert_eq!(admit(&source, facts, &empty()), BELOW_FLOOR);
}

#[test]
fn a_position_below_the_floor_needs_a_snapshot() {
    let source = standing(&[(1, 1, 1)], 100);
    let floor = Seq::new(40);
    let facts = SourceFacts { floor, ..WRITER };
    let at = |seq| admit(&source, facts, &standing(&[(1, 1, 1)], seq));
    assert_eq!(at(39), BELOW_FLOOR);
    assert_eq!(at(40), Admission::Accepted);
}

#[test]
fn an_opening_pruned_with_the_log_needs_a_snapshot() {
    let source = standing(&[(1, 2, 50), (1, 3, 90)], 100);
    let floor = Seq::new(60);
    let facts = SourceFacts { floor, ..WRITER };
    let follower = standing(&[(1, 1, 1)], 30);
    assert_eq!(admit(&source, facts, &follower), BELOW_FLOOR);
}

#[test]
fn another_cluster_is_refused() {
    let source = standing(&[(1, 1, 1)], 9);
    let mut follower = standing(&[(1, 1, 1)], 5);
    follower.cluster = Some(ClusterId::from_bytes([2; 16]));
    let verdict = admit(&source, WRITER, &follower);
    assert_eq!(verdict, Admission::Refused(Refusal::WrongCluster));
}

#[test]
fn a_source_without_data_is_not_ready() {
    let verdict = admit(&empty(), RELAY, &empty());
    assert_eq!(verdict, Admission::Refused(Refusal::NotReady));
}

#[test]
fn a_source_of_an_older_epoch_is_fenced() {
    let source = standing(&[(1, 1, 1), (1, 2, 80)], 100);
    let follower = standing(&[(1, 1, 1), (2, 3, 60)], 90);
    let verdict = admit(&source, WRITER, &follower);
    assert_eq!(verdict, Admission::Refused(Refusal::Fenced));
}

#[test]
fn two_openings_of_one_epoch_are_a_conflict() {
    let source = standing(&[(1, 1, 1), (2, 2, 50)], 100);
    let follower = standing(&[(1, 1, 1), (2, 3, 60)], 90);
    let verdict = admit(&source, WRITER, &follower);
    assert_eq!(verdict, Admission::Refused(Refusal::ConfigConflict));
}

#[test]
fn a_tail_that_a_promotion_cut_off_needs_a_snapshot_from_the_fork() {
    let source = standing(&[(1, 1, 1), (2, 2, 50)], 100);
    let old_primary = standing(&[(1, 1, 1)], 55);
    assert_eq!(admit(&source, WRITER, &old_primary), snapshot_from(49));
    let restarted = standing(&[(1, 1, 1), (1, 7, 45)], 48);
    assert_eq!(admit(&source, WRITER, &restarted), snapshot_from(44));
    let stopped_in_time = standing(&[(1, 1, 1)], 49);
    assert_eq!(
        admit(&source, WRITER, &stopped_in_time),
        Admission::Accepted
    );
}

#[test]
fn a_primary_restored_from_a_backup_is_told_that_its_follower_is_ahead() {
    let ahead = Admission::Refused(Refusal::Ahead);
    let follower = standing(&[(1, 1, 1), (1, 2, 50)], 90);
    // Older than the follower's last opening, and not opened since.
    let restored = standing(&[(1, 1, 1)], 40);
    assert_eq!(admit(&restored, WRITER, &follower), ahead);
    // Newer than that, but behind it.
    let restored = standing(&[(1, 1, 1), (1, 2, 50)], 80);
    assert_eq!(admit(&restored, WRITER, &follower), ahead);
    // Opened anew since.
    let restored = standing(&[(1, 1, 1), (1, 2, 50), (1, 9, 81)], 95);
    assert_eq!(admit(&restored, WRITER, &follower), ahead);
}

#[test]
fn a_relay_that_is_behind_asks_its_follower_to_dial_again() {
    let not_ready = Admission::Refused(Refusal::NotReady);
    let relay = standing(&[(1, 1, 1)], 40);
    let follower = standing(&[(1, 1, 1)], 41);
    assert_eq!(admit(&relay, RELAY, &follower), not_ready);
    let follower = standing(&[(1, 1, 1), (1, 2, 50)], 60);
    assert_eq!(admit(&relay, RELAY, &follower), not_ready);
    let follower = standing(&[(1, 1, 1), (2, 2, 50)], 60);
    assert_eq!(admit(&relay, RELAY, &follower), not_ready);
}

#[test]
fn a_history_out_of_order_is_not_one() {
    let disordered = vec![opening(1, 1, 5), opening(1, 2, 5)];
    assert!(History::new(disordered).is_err());
    let falling = vec![opening(2, 1, 1), opening(1, 2, 5)];
    assert!(History::new(falling).is_err());
}

#[test]
fn the_newest_openings_are_kept() {
    let many = (0..OPENINGS_MAX as u64 + 3).map(|i| opening(1, 1, i + 1));
    let history = History::new(many.collect()).unwrap();
    assert_eq!(history.openings().len(), OPENINGS_MAX);
    assert_eq!(history.openings()[0].first_seq, Seq::new(4));
}

/// A node of the model keeps what it has written or applied, change by change. A change is a
/// number that nobody else ever writes.
#[derive(Debug, Clone, Default)]
struct ModelNode {
    log: Vec<u64>,
    openings: Vec<Opening>,
    /// Opened as a primary and not set back since; whoever is set back must start anew.
    may_write: bool,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A primary starts on this node, within its epoch or with a new one.
    Open { node: usize, promote: bool },
    /// The node writes.
    Write { node: usize, count: u8 },
    /// `to` takes over the first part of the log of `from`, if its own is a prefix of it.
    Copy { from: usize, to: usize, share: u8 },
    /// The node is set back to an earlier state of its own.
    Restore { node: usize, share: u8 },
}

#[derive(Default)]
struct Model {
    nodes: [ModelNode; 3],
    changes: u64,
    nonces: u8,
}

impl Model {
    fn run(&mut self, step: Step) {
        match step {
            Step::Open { node, promote } => self.open(node, promote),
            Step::Write { node, count } => {
                for _ in 0..count {
                    self.write(node);
                }
            }
            Step::Copy { from, to, share } => {
                let (from, to) = (self.nodes[from].clone(), &mut self.nodes[to]);
                if from.log.starts_with(&to.log) {
                    let length = part(from.log.len(), share).max(to.log.len());
                    *to = from.cut(length);
                }
            }
            Step::Restore { node, share } => {
                let node = &mut self.nodes[node];
                *node = node.cut(part(node.log.len(), share));
            }
        }
    }

    fn open(&mut self, node: usize, promote: bool) {
        self.nonces += 1;
        let epoch = self.nodes[node]
            .openings
            .last()
            .map_or(1, |o| o.epoch.get());
        let first_seq = self.nodes[node].log.len() as u64 + 1;
        let opened = opening(epoch + u64::from(promote), self.nonces, first_seq);
        self.nodes[node].openings.push(opened);
        self.nodes[node].may_write = true;
        self.write(node);
    }

    fn write(&mut self, node: usize) {
        if self.nodes[node].may_write {
            self.changes += 1;
            self.nodes[node].log.push(self.changes);
        }
    }
}

impl ModelNode {
    fn cut(&self, length: usize) -> Self {
        let seen = |o: &&Opening| o.first_seq.get() <= length as u64;
        Self {
            log: self.log[..length].to_vec(),
            openings: self.openings.iter().filter(seen).cloned().collect(),
            may_write: false,
        }
    }

    fn standing(&self) -> Standing {
        Standing {
            cluster: Some(ClusterId::from_bytes([1; 16])),
            history: History::new(self.openings.clone()).unwrap(),
            seq: Seq::new(self.log.len() as u64),
        }
    }
}

fn part(length: usize, share: u8) -> usize {
    length * usize::from(share) / 255
}

fn step() -> impl Strategy<Value = Step> {
    let node = 0..3_usize;
    prop_oneof![
        (node.clone(), any::<bool>()).prop_map(|(node, promote)| Step::Open { node, promote }),
        (node.clone(), 1..5_u8).prop_map(|(node, count)| Step::Write { node, count }),
        (node.clone(), node.clone(), any::<u8>()).prop_map(|(from, to, share)| Step::Copy {
            from,
            to,
            share
        }),
        (node, any::<u8>()).prop_map(|(node, share)| Step::Restore { node, share }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_follower_is_accepted_exactly_if_its_log_is_the_beginning_of_the_sources(
        steps in prop::collection::vec(step(), 1..40),
        source in 0..3_usize,
        follower in 0..3_usize,
    ) {
        let mut model = Model::default();
        steps.into_iter().for_each(|step| model.run(step));
        let (source, follower) = (&model.nodes[source], &model.nodes[follower]);
        let verdict = admit(&source.standing(), WRITER, &follower.standing());
        let has_data = !source.openings.is_empty();
        let is_beginning = has_data && source.log.starts_with(&follower.log);
        prop_assert_eq!(verdict == Admission::Accepted, is_beginning, "{:?}", verdict);
    }

    #[test]
    fn a_fork_is_never_after_the_logs_part(
        steps in prop::collection::vec(step(), 1..40),
        source in 0..3_usize,
        follower in 0..3_usize,
    ) {
        let mut model = Model::default();
        steps.into_iter().for_each(|step| model.run(step));
        let (source, follower) = (&model.nodes[source], &model.nodes[follower]);
        let verdict = admit(&source.standing(), WRITER, &follower.standing());
        if let Admission::SnapshotRequired(SnapshotReason::Forked { fork: Some(fork) }) = verdict {
            let fork = fork.get() as usize;
            prop_assert!(fork <= follower.log.len() || fork <= source.log.len());
            let shared = fork.min(follower.log.len()).min(source.log.len());
            prop_assert_eq!(&source.log[..shared], &follower.log[..shared]);
        }
    }
}
