//! Slots of the nodes that follow: in memory, and their shadow in the database.
//!
//! What counts is in memory, beside what else is known of a follower, and changes with each
//! acknowledgement. The database holds a shadow that may lag behind: a position there is never
//! higher than what its node holds. A restart, where only the shadow is left, therefore keeps
//! too much, never too little.
//!
//! One lock decides between a follower that comes and a trim that begins. Whoever trims takes
//! the floor it is about to make ([`Followers::claim`]); a follower below it is turned away from
//! that moment on, and one at or above it holds the log from the moment it was let in.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

use tidegate_engine::slots::{self, SLOTS_MAX, slots};
use tidegate_engine::{Engine, Error as EngineError, Seq, Slot, SlotState, clock, meta};

use crate::error::Result;
use crate::followers::{FollowerStatus, Followers};
use crate::ids::NodeId;
use crate::retention::{self, Decision, Held, Limits, Log, SlotView};

/// Why a node cannot have a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSlot {
    /// What it lacks is trimmed, or about to be: the log begins here.
    BelowFloor(Seq),
    /// There are [`SLOTS_MAX`] of them.
    TooMany,
}

/// What became of a wish to forget a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgotten {
    /// Its slot is gone.
    Yes,
    /// Nothing was known of it.
    Unknown,
    /// It has a stream, and would be back at once.
    IsConnected,
}

impl Followers {
    /// Decides what becomes of the log. What is to be trimmed counts as gone from here on.
    pub fn claim(&self, log: Log, limits: &Limits, now: Instant) -> Decision {
        let mut claimed = self.lock_claimed();
        *claimed = log.floor.max(*claimed);
        let log = Log {
            claimed: *claimed,
            ..log
        };
        let decision = retention::decide(log, &self.slot_views(), limits, now);
        for node in &decision.take_back {
            self.change(node, |held| {
                held.state = SlotState::Active;
                held.durable = false;
            });
        }
        *claimed = decision.up_to.unwrap_or(*claimed);
        decision
    }

    /// Lets a node in at `applied`: the log is held for it from there on.
    pub(crate) fn take_slot(&self, node: &NodeId, applied: Seq) -> Result<(), NoSlot> {
        let claimed = self.lock_claimed();
        if applied < *claimed {
            return Err(NoSlot::BelowFloor(*claimed));
        }
        let anew = Held {
            from: applied,
            state: SlotState::Active,
            durable: false,
        };
        self.hold(node, applied, anew, |present| {
            let goes_on = present.state == SlotState::Active && present.from <= applied;
            Held {
                durable: present.durable && goes_on,
                ..anew
            }
        })
    }

    /// Holds the log for a node that is about to be given a copy taken at `head` or later, and
    /// for what it may already need.
    pub(crate) fn hold_for_snapshot(&self, node: &NodeId, head: Seq) -> Result<(), NoSlot> {
        let claimed = self.lock_claimed();
        let anew = Held {
            from: head.max(*claimed),
            state: SlotState::Active,
            durable: false,
        };
        // Of a node that was never seen nothing is known but that it has no data.
        self.hold(node, Seq::ZERO, anew, |present| {
            let is_of_use = present.state == SlotState::Active && present.from >= *claimed;
            if is_of_use { present } else { anew }
        })
    }

    fn hold(
        &self,
        node: &NodeId,
        applied: Seq,
        anew: Held,
        go_on: impl Fn(Held) -> Held,
    ) -> Result<(), NoSlot> {
        let has_one = |status: &&FollowerStatus| status.slot.is_some();
        let all = self.status.borrow();
        let present = all.get(node).and_then(|status| status.slot);
        let is_full = all.values().filter(has_one).count() >= SLOTS_MAX;
        drop(all);
        if present.is_none() && is_full {
            return Err(NoSlot::TooMany);
        }
        self.update(node, applied, |status| {
            status.slot = Some(status.slot.map_or(anew, go_on));
        });
        Ok(())
    }

    /// The slot of a node.
    pub fn slot(&self, node: &NodeId) -> Option<Held> {
        self.status
            .borrow()
            .get(node)
            .and_then(|status| status.slot)
    }

    /// All slots as they are to be stored now.
    pub fn slots(&self) -> Vec<Slot> {
        let (now, now_ms) = (Instant::now(), clock::now_ms());
        let views = self.slot_views();
        let views = views.into_iter();
        views
            .map(|view| {
                let silent = now.saturating_duration_since(view.heard).as_millis();
                Slot {
                    node: view.node.to_string(),
                    from: view.held.from,
                    seen_ms: now_ms.saturating_sub(i64::try_from(silent).unwrap_or(i64::MAX)),
                    state: view.held.state,
                }
            })
            .collect()
    }

    /// A database was opened: what it knows counts where nothing newer is known.
    fn opened(&self, stored: &[Slot], floor: Seq) {
        *self.lock_claimed() = floor;
        self.status.send_modify(|all| {
            for held in all.values_mut().filter_map(|status| status.slot.as_mut()) {
                held.durable = false;
            }
            for slot in stored {
                let Ok(node) = NodeId::new(slot.node.as_str()) else {
                    continue;
                };
                let status = all
                    .entry(node)
                    .or_insert_with(|| FollowerStatus::new(slot.from));
                status.slot.get_or_insert(Held {
                    from: slot.from,
                    state: slot.state,
                    durable: true,
                });
            }
        });
    }

    fn change(&self, node: &NodeId, change: impl FnOnce(&mut Held)) {
        self.status.send_modify(|all| {
            if let Some(held) = all.get_mut(node).and_then(|status| status.slot.as_mut()) {
                change(held);
            }
        });
    }

    /// Takes a slot, and everything else that is known of a node that is not connected.
    fn release(&self, node: &NodeId) -> Forgotten {
        let mut outcome = Forgotten::Unknown;
        self.status.send_modify(|all| match all.get(node) {
            Some(status) if status.connected => outcome = Forgotten::IsConnected,
            Some(_) => {
                all.remove(node);
                outcome = Forgotten::Yes;
            }
            None => {}
        });
        outcome
    }

    fn slot_views(&self) -> Vec<SlotView> {
        let all = self.status.borrow();
        let with_slot = all.iter().filter_map(|(node, status)| {
            Some(SlotView {
                node: node.clone(),
                held: status.slot?,
                connected: status.connected,
                heard: status.heard,
            })
        });
        with_slot.collect()
    }

    fn lock_claimed(&self) -> MutexGuard<'_, Seq> {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads what the database knows. Nothing may be trimmed before.
pub fn load(engine: &Engine, followers: &Followers) -> Result<()> {
    let _pass = engine.store().gate().enter();
    let mut connection = engine.store().reader()?;
    let stored = slots(&mut connection)?;
    followers.opened(&stored, meta::floor(&mut connection)?);
    Ok(())
}

/// Makes the slot of a node durable, if it is not. Blocks.
pub fn save(engine: &Engine, followers: &Arc<Followers>, node: &NodeId) -> Result<()> {
    if followers.slot(node).is_some_and(|held| held.durable) {
        return Ok(());
    }
    let (followers, node) = (followers.clone(), node.clone());
    let saved = engine.with_permit(move |connection| {
        let mut slots = followers.slots();
        slots.retain(|slot| slot.node == node.as_str());
        slots::store(connection, &slots)?;
        for slot in slots {
            followers.change(&node, |held| {
                held.durable = held.state == slot.state && held.from >= slot.from;
            });
        }
        Ok(())
    });
    Ok(saved?)
}

/// Gives the slot of a node up, if it still is past the limits: durably first, and only then
/// does it hold nothing. Blocks. False if it was not given up.
pub fn give_up(
    engine: &Engine,
    followers: &Arc<Followers>,
    node: &NodeId,
    limits: &Limits,
) -> Result<bool> {
    let (followers, node, limits) = (followers.clone(), node.clone(), *limits);
    let head = engine.head();
    let given_up = engine.with_permit(move |connection| {
        // Nobody is let in while this is undecided.
        let _claimed = followers.lock_claimed();
        let (head, now) = (head.borrow().seq, Instant::now());
        let is_past = |view: &SlotView| retention::past_limits(head, view, &limits, now).is_some();
        let views = followers.slot_views();
        if !views.iter().any(|view| view.node == node && is_past(view)) {
            return Ok(false);
        }
        let mut slots = followers.slots();
        slots.retain(|slot| slot.node == node.as_str());
        for slot in &mut slots {
            slot.state = SlotState::NeedsSnapshot;
        }
        slots::store(connection, &slots)?;
        followers.change(&node, |held| {
            held.state = SlotState::NeedsSnapshot;
            held.durable = false;
        });
        Ok(true)
    });
    Ok(given_up?)
}

/// Forgets a node that will not come back. Blocks.
pub fn forget(engine: &Engine, followers: &Followers, node: &NodeId) -> Result<Forgotten> {
    let known = followers.release(node);
    if known == Forgotten::IsConnected {
        return Ok(known);
    }
    let name = node.to_string();
    let removed = engine.with_permit(move |connection| slots::remove(connection, &name));
    Ok(match (known, removed?) {
        (Forgotten::Unknown, false) => Forgotten::Unknown,
        _ => Forgotten::Yes,
    })
}

impl From<NoSlot> for EngineError {
    fn from(no_slot: NoSlot) -> Self {
        match no_slot {
            NoSlot::BelowFloor(floor) => {
                Self::SnapshotRequired(format!("the log begins after {floor}"))
            }
            NoSlot::TooMany => Self::Overloaded(format!(
                "{SLOTS_MAX} nodes hold the log already; forget those that will not come back"
            )),
        }
    }
}
