//! Whether one node may follow another, decided from their histories.
//!
//! A **history** is the list of **openings** of a cluster: each start of a primary and each
//! promotion adds one, with 16 random bytes that nobody else has. Because an opening is a row
//! of the log like any other, a node that has applied the log up to a position has seen
//! exactly the openings written up to there. So a follower's position is on its source's
//! history if and only if
//!
//! * the last opening the follower has seen is one of the source's (the ones before it are
//!   then the same, for an opening is written once and by one node), and
//! * its position lies before the next opening that the source knows, or, if there is none,
//!   not beyond the source's head.
//!
//! That comparison alone tells apart restored backups, cloned volumes, wiped nodes and two
//! primaries, and it costs nothing while data flows. What is not on the history is sorted by
//! what has to happen next:
//!
//! | found | verdict |
//! |---|---|
//! | different clusters | refused, `wrong_cluster` |
//! | the follower has seen a later epoch than this writer | refused, `fenced`: the source steps down |
//! | one epoch, but openings that the other has not seen | refused, `config_conflict`: two nodes opened it |
//! | the follower holds changes that this writer has lost | refused, `ahead`: a person decides |
//! | the follower holds changes that a promotion cut off | snapshot, from the fork |
//! | the position is below the floor of the source's log | snapshot |
//! | the source is itself a follower and not as far yet | refused, `not_ready`: dial again |

use tidegate_engine::Seq;

use crate::error::{Error, Result};
use crate::ids::{ClusterId, Epoch, Nonce};

/// Openings a history may hold: the newest. Each takes at most 320 bytes on the wire, so that
/// a handshake stays under the limit of a message.
pub const OPENINGS_MAX: usize = 2_048;

/// A primary started, or was promoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// Rises with each promotion; the same for each start within it.
    pub epoch: Epoch,
    /// Nobody else has these bytes.
    pub nonce: Nonce,
    /// Position of the opening's own row, the first change under it.
    pub first_seq: Seq,
    /// The node that opened it.
    pub node: String,
    /// Milliseconds since 1970 on that node's clock.
    pub opened_ms: u64,
    /// Why, for people.
    pub why: String,
}

/// Openings, oldest first; the oldest may have been pruned away.
///
/// First positions rise and epochs do not fall, from one opening to the next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    openings: Vec<Opening>,
}

/// A node's side of the handshake.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The cluster; `None` on a node without data.
    pub cluster: Option<ClusterId>,
    /// The openings it has seen.
    pub history: History,
    /// Its position: what a follower has applied, what a source has as its head.
    pub seq: Seq,
}

/// What only the source's side has.
#[derive(Debug, Clone, Copy)]
pub struct SourceFacts {
    /// Positions below this cannot be fed.
    pub floor: Seq,
    /// The source takes writes of its own, so nothing of its cluster can be beyond its head.
    pub may_write: bool,
}

/// What becomes of a follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Its position is on the history and in the log.
    Accepted,
    /// It must install a snapshot first.
    SnapshotRequired(SnapshotReason),
    /// It must not follow.
    Refused(Refusal),
}

/// Why a snapshot is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotReason {
    /// The position is below the source's floor.
    BelowFloor,
    /// Reading the backlog costs more than a copy.
    Backlog,
    /// The follower holds changes after `fork` that a promotion cut off. `None`: no opening
    /// in common is left.
    Forked {
        /// Last position that both histories share.
        fork: Option<Seq>,
    },
}

/// Why a follower is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Different clusters.
    WrongCluster,
    /// The source's epoch is older.
    Fenced,
    /// One epoch, two histories.
    ConfigConflict,
    /// The source has lost what the follower holds.
    Ahead,
    /// A node dialled itself.
    Itself,
    /// Versions of the protocol do not match.
    Protocol,
    /// A message did not say what it must.
    Invalid,
    /// The source cannot feed anybody now.
    NotReady,
}

impl Refusal {
    /// The one word for it in logs, metrics and messages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::WrongCluster => "wrong_cluster",
            Self::Fenced => "fenced",
            Self::ConfigConflict => "config_conflict",
            Self::Ahead => "ahead",
            Self::Itself => "self",
            Self::Protocol => "protocol",
            Self::Invalid => "invalid",
            Self::NotReady => "not_ready",
        }
    }
}

impl History {
    /// Checks the order. Keeps the newest [`OPENINGS_MAX`].
    pub fn new(mut openings: Vec<Opening>) -> Result<Self> {
        for pair in openings.windows(2) {
            if pair[0].first_seq >= pair[1].first_seq || pair[0].epoch > pair[1].epoch {
                return Err(Error::invalid(
                    "history",
                    format!(
                        "is not in order: epoch {} from {} is followed by epoch {} from {}",
                        pair[0].epoch, pair[0].first_seq, pair[1].epoch, pair[1].first_seq
                    ),
                ));
            }
        }
        let surplus = openings.len().saturating_sub(OPENINGS_MAX);
        openings.drain(..surplus);
        Ok(Self { openings })
    }

    /// All openings, oldest first.
    pub fn openings(&self) -> &[Opening] {
        &self.openings
    }

    /// The newest opening.
    pub fn last(&self) -> Option<&Opening> {
        self.openings.last()
    }

    /// Epoch of the newest opening; zero before the first.
    pub fn epoch(&self) -> Epoch {
        self.last().map_or(Epoch::default(), |o| o.epoch)
    }

    fn find(&self, nonce: Nonce) -> Option<usize> {
        self.openings.iter().rposition(|o| o.nonce == nonce)
    }
}

/// Decides whether `follower` may follow `source`.
pub fn admit(source: &Standing, facts: SourceFacts, follower: &Standing) -> Admission {
    use Admission::{Accepted, Refused, SnapshotRequired};
    let (Some(cluster), Some(_)) = (source.cluster, source.history.last()) else {
        return Refused(Refusal::NotReady);
    };
    if follower.cluster.is_some_and(|other| other != cluster) {
        return Refused(Refusal::WrongCluster);
    }
    let Some(seen) = follower.history.last() else {
        return match follower.seq {
            Seq::ZERO if facts.floor == Seq::ZERO => Accepted,
            Seq::ZERO => SnapshotRequired(SnapshotReason::BelowFloor),
            _ => SnapshotRequired(SnapshotReason::Forked { fork: None }),
        };
    };
    match source.history.find(seen.nonce) {
        Some(at) => on_shared_opening(source, facts, follower, at),
        None => on_unknown_opening(source, facts, follower, seen),
    }
}

/// The follower's last opening is the source's opening number `at`.
fn on_shared_opening(
    source: &Standing,
    facts: SourceFacts,
    follower: &Standing,
    at: usize,
) -> Admission {
    let openings = source.history.openings();
    if !prefixes_agree(&openings[..=at], follower.history.openings()) {
        return Admission::Refused(Refusal::ConfigConflict);
    }
    if let Some(next) = openings.get(at + 1) {
        if follower.seq >= next.first_seq {
            return if next.epoch > openings[at].epoch {
                Admission::SnapshotRequired(SnapshotReason::Forked {
                    fork: Some(before(next.first_seq)),
                })
            } else {
                // The same primary opened anew below what it had already handed out.
                Admission::Refused(Refusal::Ahead)
            };
        }
    } else if follower.seq > source.seq {
        return Admission::Refused(behind(facts, Refusal::Ahead));
    }
    if follower.seq < facts.floor {
        return Admission::SnapshotRequired(SnapshotReason::BelowFloor);
    }
    Admission::Accepted
}

/// The source does not know the follower's last opening.
fn on_unknown_opening(
    source: &Standing,
    facts: SourceFacts,
    follower: &Standing,
    seen: &Opening,
) -> Admission {
    let epoch = source.history.epoch();
    if seen.epoch > epoch {
        return Admission::Refused(behind(facts, Refusal::Fenced));
    }
    let follower_knows_ours = source
        .history
        .last()
        .is_some_and(|last| follower.history.find(last.nonce).is_some());
    if follower_knows_ours {
        return Admission::Refused(behind(facts, Refusal::Ahead));
    }
    let pruned = source
        .history
        .openings()
        .first()
        .is_some_and(|oldest| seen.first_seq < oldest.first_seq);
    if pruned && follower.seq < facts.floor {
        return Admission::SnapshotRequired(SnapshotReason::BelowFloor);
    }
    if seen.epoch < epoch {
        return Admission::SnapshotRequired(SnapshotReason::Forked {
            fork: fork(&source.history, &follower.history),
        });
    }
    Admission::Refused(Refusal::ConfigConflict)
}

/// A writer that is behind its follower has a problem of its own; a source that follows
/// somebody itself is merely not as far yet.
fn behind(facts: SourceFacts, problem: Refusal) -> Refusal {
    if facts.may_write {
        problem
    } else {
        Refusal::NotReady
    }
}

/// Both lists end with the same opening; as far as both reach back they must be equal.
fn prefixes_agree(ours: &[Opening], theirs: &[Opening]) -> bool {
    let pairs = ours.iter().rev().zip(theirs.iter().rev());
    pairs.into_iter().all(|(a, b)| a.nonce == b.nonce)
}

/// Last position before the histories part, after their last common opening.
fn fork(ours: &History, theirs: &History) -> Option<Seq> {
    let common = theirs
        .openings()
        .iter()
        .rposition(|o| ours.find(o.nonce).is_some())?;
    let at = ours.find(theirs.openings()[common].nonce)?;
    let next_ours = ours.openings().get(at + 1).map(|o| o.first_seq);
    let next_theirs = theirs.openings().get(common + 1).map(|o| o.first_seq);
    let parted = [next_ours, next_theirs].into_iter().flatten().min()?;
    Some(before(parted))
}

fn before(seq: Seq) -> Seq {
    Seq::new(seq.get().saturating_sub(1))
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
