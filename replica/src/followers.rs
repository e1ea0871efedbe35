//! The nodes that follow this one, as this one sees them.
//!
//! One value in a `watch`: `/lag`, metrics, the trimming of the log and clients that wait for
//! replicas all read it, and none of them asks a stream. A follower stays in it after its
//! stream ended (a node that is away is the one an operator looks for), the longest absent
//! making room when there are more than [`FOLLOWERS_MAX`].
//!
//! One node has one stream. When a second one opens under the same name the newer wins,
//! because the older is most often a connection that died without a word; if both belong to
//! different processes that live, the log says so each time.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tidegate_engine::Seq;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::ids::{BootId, NodeId};
use crate::proof::{PassProgress, PassReport};
use crate::retention::Held;
use crate::slots::NoSlot;

/// Followers remembered.
const FOLLOWERS_MAX: usize = 256;
/// Commands that may wait for a stream.
const COMMANDS_MAX: usize = 4;

/// One follower.
#[derive(Debug, Clone)]
pub struct FollowerStatus {
    /// A stream is open.
    pub connected: bool,
    /// Streams it has opened since this process started.
    pub connects: u64,
    /// Why the last stream ended, or this one was refused.
    pub ended: String,
    /// When it was heard last.
    pub heard: Instant,
    /// Sent to it.
    pub sent: Seq,
    /// Wholly received by it.
    pub received: Seq,
    /// Durably applied by it.
    pub applied: Seq,
    /// Bytes sent and not yet applied.
    pub bytes_under_way: u64,
    /// Bytes sent since this process started.
    pub bytes_sent: u64,
    /// Age of the oldest change it lacks when it was last looked at, milliseconds.
    pub lag_ms: u64,
    /// Commits of this node that it lacks, as far as they were seen one by one.
    pub lag_commits: u64,
    /// When `lag_ms` was taken.
    pub lag_taken: Instant,
    /// The pass under way.
    pub pass: Option<PassProgress>,
    /// The pass that ended last, as this side saw it.
    pub report: Option<PassReport>,
    /// Passes that ended.
    pub passes: u64,
    /// What of the log is kept for it. `None` if it was never let in.
    pub slot: Option<Held>,
}

/// What somebody may want from a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Begin a pass, at full speed.
    Pass,
    /// Have the follower take over this side.
    Repair,
}

/// See the module's head.
pub struct Followers {
    pub(crate) status: watch::Sender<BTreeMap<NodeId, FollowerStatus>>,
    streams: Mutex<BTreeMap<NodeId, Stream>>,
    /// The floor as far as it is decided: see `slots`.
    pub(crate) claimed: Mutex<Seq>,
}

struct Stream {
    boot: BootId,
    number: u64,
    cancel: CancellationToken,
    commands: mpsc::Sender<Command>,
}

/// A stream's place in the register. Given up when dropped.
pub struct Attached<'a> {
    followers: &'a Followers,
    node: NodeId,
    number: u64,
    /// Since when it has lacked something, as far as an earlier stream told.
    pub behind_since: Option<Instant>,
    /// Cancelled when a newer stream of the same node takes over.
    pub cancel: CancellationToken,
    /// What others want from the stream.
    pub commands: mpsc::Receiver<Command>,
}

impl Default for Followers {
    fn default() -> Self {
        Self::new()
    }
}

impl Followers {
    /// Nobody follows.
    pub fn new() -> Self {
        Self {
            status: watch::Sender::new(BTreeMap::new()),
            streams: Mutex::new(BTreeMap::new()),
            claimed: Mutex::new(Seq::ZERO),
        }
    }

    /// All followers, by name.
    pub fn status(&self) -> watch::Receiver<BTreeMap<NodeId, FollowerStatus>> {
        self.status.subscribe()
    }

    /// Asks all open streams, or the one of `node`, to begin a pass. Gives the names of those
    /// that will.
    pub fn begin_pass(&self, node: Option<&NodeId>) -> Vec<NodeId> {
        self.command(node, &Command::Pass)
    }

    /// Tells all open streams, or the one of `node`, to take over this node's side: the
    /// whole of it is copied over theirs. Gives the names of those that will.
    pub fn begin_repair(&self, node: Option<&NodeId>) -> Vec<NodeId> {
        self.command(node, &Command::Repair)
    }

    fn command(&self, node: Option<&NodeId>, command: &Command) -> Vec<NodeId> {
        self.lock()
            .iter()
            .filter(|(name, _)| node.is_none_or(|wanted| wanted == *name))
            .filter(|(_, stream)| stream.commands.try_send(command.clone()).is_ok())
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// A stream opened, and the log is held for it from `applied` on. One of the same name that
    /// is still open is cancelled.
    pub fn attach(
        &self,
        node: &NodeId,
        boot: BootId,
        applied: Seq,
        stop: &CancellationToken,
    ) -> Result<Attached<'_>, NoSlot> {
        self.take_slot(node, applied)?;
        let cancel = stop.child_token();
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let mut number = 0;
        let behind_since = self.behind_since(node);
        self.update(node, applied, |status| {
            status.connected = true;
            status.connects += 1;
            number = status.connects;
        });
        let stream = Stream {
            boot,
            number,
            cancel: cancel.clone(),
            commands: sender,
        };
        let before = self.lock().insert(node.clone(), stream);
        if let Some(before) = before {
            if before.boot != boot {
                tracing::warn!(%node, "two processes follow under one name; the newer stream wins");
            }
            before.cancel.cancel();
        }
        Ok(Attached {
            followers: self,
            node: node.clone(),
            number,
            behind_since,
            cancel,
            commands,
        })
    }

    /// A follower that returns has been behind since it was last known to be level.
    fn behind_since(&self, node: &NodeId) -> Option<Instant> {
        let all = self.status.borrow();
        let status = all.get(node).filter(|status| status.connects > 0)?;
        let lag = std::time::Duration::from_millis(status.lag_ms);
        status.lag_taken.checked_sub(lag)
    }

    /// A follower was turned away.
    pub fn refused(&self, node: &NodeId, applied: Seq, why: &str) {
        self.update(node, applied, |status| why.clone_into(&mut status.ended));
    }

    pub(crate) fn update(
        &self,
        node: &NodeId,
        applied: Seq,
        change: impl FnOnce(&mut FollowerStatus),
    ) {
        self.status.send_modify(|all| {
            if !all.contains_key(node) && all.len() >= FOLLOWERS_MAX {
                forget_longest_absent(all);
            }
            let status = all
                .entry(node.clone())
                .or_insert_with(|| FollowerStatus::new(applied));
            change(status);
        });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Stream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FollowerStatus {
    pub(crate) fn new(applied: Seq) -> Self {
        let now = Instant::now();
        Self {
            connected: false,
            connects: 0,
            ended: String::new(),
            heard: now,
            sent: applied,
            received: applied,
            applied,
            bytes_under_way: 0,
            bytes_sent: 0,
            lag_ms: 0,
            lag_commits: 0,
            lag_taken: now,
            pass: None,
            report: None,
            passes: 0,
            slot: None,
        }
    }

    /// The lag in milliseconds at `now`: it goes on growing while nothing is heard.
    pub fn lag_ms_at(&self, head: Seq, now: Instant) -> u64 {
        if self.applied >= head {
            return 0;
        }
        let since = now.saturating_duration_since(self.lag_taken).as_millis();
        self.lag_ms
            .saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

impl Attached<'_> {
    /// Publishes a change of this follower. Does nothing once a newer stream has taken over.
    pub fn publish(&self, change: impl FnOnce(&mut FollowerStatus)) {
        self.followers.status.send_if_modified(|all| {
            let status = all.get_mut(&self.node);
            let status = status.filter(|status| status.connects == self.number);
            match status {
                Some(status) => {
                    change(status);
                    true
                }
                None => false,
            }
        });
    }

    /// Why the stream ends.
    pub fn ended(&self, why: &str) {
        self.publish(|status| why.clone_into(&mut status.ended));
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.publish(|status| {
            status.connected = false;
            status.pass = None;
            status.bytes_under_way = 0;
        });
        let mut streams = self.followers.lock();
        if streams
            .get(&self.node)
            .is_some_and(|stream| stream.number == self.number)
        {
            streams.remove(&self.node);
        }
    }
}

fn forget_longest_absent(all: &mut BTreeMap<NodeId, FollowerStatus>) {
    let longest = all
        .iter()
        .filter(|(_, status)| !status.connected && status.slot.is_none())
        .min_by_key(|(_, status)| status.heard)
        .map(|(node, _)| node.clone());
    if let Some(node) = longest {
        all.remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    const BOOT: BootId = BootId::new([1; 16]);

    #[test]
    fn the_newer_stream_of_a_node_wins_and_the_older_says_nothing_more() {
        let followers = Followers::new();
        let stop = CancellationToken::new();
        let older = followers
            .attach(&node("n2"), BOOT, Seq::ZERO, &stop)
            .unwrap();
        let newer = followers
            .attach(&node("n2"), BOOT, Seq::ZERO, &stop)
            .unwrap();
        assert!(older.cancel.is_cancelled() && !newer.cancel.is_cancelled());
        newer.publish(|status| status.applied = Seq::new(9));
        older.publish(|status| status.applied = Seq::new(3));
        drop(older);
        let status = followers.status();
        let status = status.borrow()[&node("n2")].clone();
        assert_eq!((status.applied, status.connected), (Seq::new(9), true));
        assert_eq!(followers.begin_pass(None), [node("n2")]);
        drop(newer);
        assert!(!followers.status().borrow()[&node("n2")].connected);
        assert!(followers.begin_pass(None).is_empty());
    }

    #[test]
    fn a_follower_that_left_is_remembered_until_there_are_too_many() {
        let followers = Followers::new();
        let stop = CancellationToken::new();
        let kept = followers
            .attach(&node("kept"), BOOT, Seq::ZERO, &stop)
            .unwrap();
        for i in 0..FOLLOWERS_MAX {
            followers.refused(&node(&format!("n{i}")), Seq::ZERO, "for a test");
        }
        let status = followers.status();
        assert_eq!(status.borrow().len(), FOLLOWERS_MAX);
        assert!(status.borrow().contains_key(&kept.node));
        assert!(!status.borrow().contains_key(&node("n0")));
    }

    #[test]
    fn the_lag_of_a_follower_grows_while_it_is_silent() {
        let mut status = FollowerStatus::new(Seq::new(5));
        status.lag_ms = 100;
        let later = status.lag_taken + std::time::Duration::from_secs(2);
        assert_eq!(status.lag_ms_at(Seq::new(6), later), 2_100);
        assert_eq!(status.lag_ms_at(Seq::new(5), later), 0);
    }
}
