//! How much of the log is kept: a pure decision.
//!
//! A node that may write keeps what its followers' slots hold, and a tail in any case, so that
//! one that comes with an older copy, or was forgotten too early, has a chance to be fed. A
//! replica keeps what its source keeps, as far as it was told, because it may have to take its
//! place, and what the slots of its own followers hold.
//!
//! A slot holds the log for as long as its node may still be served better from the log than
//! by a snapshot, which the limits say. A slot past a limit is first marked; only when the mark
//! is durable, and this is asked again, does it hold nothing any more. So no answer given here
//! ever passes a slot that was not given up before.

use std::time::{Duration, Instant};

use tidegate_engine::{Seq, SlotState};

use crate::ids::NodeId;

/// Changes kept for nobody in particular.
pub const TAIL_ROWS: u64 = 10_000;
/// Trimming less than this at a time is not worth a transaction.
pub const STEP_ROWS: u64 = 10_000;

/// When a slot is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A follower that lacks more changes than this.
    pub keep_rows: u64,
    /// A follower that lacks any and has no stream, and was not heard for this long. Time
    /// before this process started does not count: it may have been this node that was away.
    pub keep_age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            keep_rows: 10_000_000,
            keep_age: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// What a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// A position that the follower durably holds, or will with the snapshot it is given.
    pub from: Seq,
    /// Whether it holds the log.
    pub state: SlotState,
    /// The database knows it, perhaps with an older position.
    pub durable: bool,
}

/// A slot with its node, as the decision sees it.
#[derive(Debug, Clone)]
pub struct SlotView {
    /// Whose it is.
    pub node: NodeId,
    /// What it holds.
    pub held: Held,
    /// A stream is open.
    pub connected: bool,
    /// When the node was heard last.
    pub heard: Instant,
}

/// Where the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// The newest position.
    pub head: Seq,
    /// Trimmed up to here.
    pub floor: Seq,
    /// Decided to be trimmed up to here, in chunks.
    pub claimed: Seq,
    /// Who else has a say.
    pub source: Above,
}

/// What lies above this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Above {
    /// Nobody: it may write.
    Nobody,
    /// A source with this floor; zero if it was not told.
    Source(Seq),
}

/// What to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// Slots to give up, and why.
    pub give_up: Vec<(NodeId, String)>,
    /// Slots that were given up, and whose followers made it nevertheless.
    pub take_back: Vec<NodeId>,
    /// Trim up to here.
    pub up_to: Option<Seq>,
}

/// Decides. Time only enters through how long ago a follower was heard.
pub fn decide(log: Log, slots: &[SlotView], limits: &Limits, now: Instant) -> Decision {
    let mut decision = Decision::default();
    let mut bound = match log.source {
        Above::Nobody => before(log.head, TAIL_ROWS.min(limits.keep_rows)),
        Above::Source(floor) => floor.min(log.head),
    };
    for slot in slots {
        let why = past_limits(log.head, slot, limits, now);
        match (slot.held.state, why) {
            (SlotState::Active, why) => {
                bound = bound.min(slot.held.from);
                decision
                    .give_up
                    .extend(why.map(|why| (slot.node.clone(), why)));
            }
            (SlotState::NeedsSnapshot, None) if slot.connected && slot.held.from >= log.claimed => {
                bound = bound.min(slot.held.from);
                decision.take_back.push(slot.node.clone());
            }
            (SlotState::NeedsSnapshot, _) => {}
        }
    }
    let worth = match log.source {
        Above::Nobody => STEP_ROWS.min(limits.keep_rows).max(1),
        // The source has already waited for a step.
        Above::Source(_) => 1,
    };
    // What was begun is finished.
    let rest = log.claimed.get().saturating_sub(log.floor.get());
    let more = bound.get().saturating_sub(log.floor.get());
    decision.up_to = (more >= worth || rest > 0).then_some(bound.max(log.claimed));
    decision
}

/// Why a slot is past a limit, if it is.
pub fn past_limits(head: Seq, slot: &SlotView, limits: &Limits, now: Instant) -> Option<String> {
    let lacks = head.get().saturating_sub(slot.held.from.get());
    if lacks > limits.keep_rows {
        return Some(format!(
            "it lacks {lacks} changes, and {} are kept",
            limits.keep_rows
        ));
    }
    let silent = now.saturating_duration_since(slot.heard);
    let is_away = !slot.connected && lacks > 0;
    (is_away && silent > limits.keep_age).then(|| {
        format!(
            "it was not heard for {} s, and the log is kept for {} s",
            silent.as_secs(),
            limits.keep_age.as_secs()
        )
    })
}

fn before(seq: Seq, rows: u64) -> Seq {
    Seq::new(seq.get().saturating_sub(rows))
}

#[cfg(test)]
#[path = "retention_tests.rs"]
mod tests;
