//! What a follower knows of itself, as one value in a `watch`.

use std::time::{Duration, Instant};

use tidegate_engine::Seq;

use crate::history::Refusal;
use crate::ids::{Epoch, NodeId};
use crate::proof::Proof;
use crate::transfer::TransferProgress;

/// What a follower is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The database is not open yet.
    Starting,
    /// No stream: dialling, or waiting to dial again.
    Connecting,
    /// A stream is open and what was there at its beginning is not yet applied.
    CatchingUp,
    /// A stream is open and everything that was there at its beginning is applied.
    Following,
    /// A snapshot is on its way.
    Snapshotting,
    /// The source does not want this follower.
    Refused(Refusal),
    /// This follower holds changes that its history does not: an operator decides.
    Forked,
    /// A batch could not be applied. Stays so until an operator does something.
    Stalled,
    /// No space on the disk. Goes on by itself when there is.
    NoSpace,
    /// The disk or the engine failed.
    IoError,
    /// Ended.
    Stopped,
}

/// See the module's head.
#[derive(Debug, Clone)]
pub struct FollowerState {
    /// What it is doing.
    pub phase: Phase,
    /// Why, for people.
    pub detail: String,
    /// The node at the other end, once it has said its name.
    pub source: Option<NodeId>,
    /// Epoch of the newest opening seen, here or at the source.
    pub epoch: Epoch,
    /// Streams that began.
    pub connects: u64,
    /// Dials and streams that failed.
    pub failures: u64,
    /// Newest position wholly here.
    pub received: Seq,
    /// Newest position durably applied.
    pub applied: Seq,
    /// Newest position of the source, as far as known.
    pub head: Seq,
    /// When the head was committed, on the source's clock, milliseconds; 0 if unknown.
    pub head_committed_ms: u64,
    /// Since when this node has lacked something, on this node's clock.
    pub behind_since: Option<Instant>,
    /// Commits that it lacks, as far as they were seen one by one.
    pub commits_behind: u64,
    /// When the source was heard last.
    pub heard: Option<Instant>,
    /// Bytes received and not yet applied.
    pub bytes_waiting: u64,
    /// Batches applied since the process started.
    pub batches_applied: u64,
    /// Rows applied since the process started.
    pub rows_applied: u64,
    /// Bytes applied since the process started.
    pub bytes_applied: u64,
    /// Milliseconds from the newest batch's commit at the source to its being durable here.
    pub commit_to_apply_ms: u64,
    /// The snapshot on its way.
    pub transfer: Option<TransferProgress>,
    /// Snapshots installed since the process started.
    pub snapshots: u64,
    /// Repairs done since the process started.
    pub repairs: u64,
    /// The proof, or its absence.
    pub proof: Proof,
}

impl FollowerState {
    /// Before anything happened.
    pub fn starting() -> Self {
        Self {
            phase: Phase::Starting,
            detail: String::new(),
            source: None,
            epoch: Epoch::default(),
            connects: 0,
            failures: 0,
            received: Seq::ZERO,
            applied: Seq::ZERO,
            head: Seq::ZERO,
            head_committed_ms: 0,
            behind_since: None,
            commits_behind: 0,
            heard: None,
            bytes_waiting: 0,
            batches_applied: 0,
            rows_applied: 0,
            bytes_applied: 0,
            commit_to_apply_ms: 0,
            transfer: None,
            snapshots: 0,
            repairs: 0,
            proof: Proof::default(),
        }
    }

    /// True while a stream is open.
    pub fn is_attached(&self) -> bool {
        matches!(self.phase, Phase::CatchingUp | Phase::Following)
    }

    /// Changes that this node lacks, as far as it knows.
    pub fn changes_behind(&self) -> u64 {
        self.head.get().saturating_sub(self.applied.get())
    }

    /// How long the source has been silent. `None` if it was never heard.
    pub fn silence(&self, now: Instant) -> Option<Duration> {
        self.heard.map(|heard| now.saturating_duration_since(heard))
    }

    /// How far behind this node is in time: the age of the oldest change it lacks, or the
    /// silence of its source if that is longer than `silence_allowed`, because a silent source
    /// may have gone on. `None` if it was never heard: that is not zero.
    pub fn lag(&self, now: Instant, silence_allowed: Duration) -> Option<Duration> {
        let silence = self.silence(now)?;
        let behind = self
            .behind_since
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if silence > silence_allowed {
            Some(behind.max(silence))
        } else {
            Some(behind)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Duration = Duration::from_secs(2);

    #[test]
    fn silence_is_lag_and_never_having_heard_is_not_zero() {
        let mut state = FollowerState::starting();
        let now = Instant::now();
        assert_eq!(state.lag(now, ALLOWED), None);
        state.heard = Some(now);
        assert_eq!(state.lag(now, ALLOWED), Some(Duration::ZERO));
        let later = now + Duration::from_secs(2);
        assert_eq!(state.lag(later, ALLOWED), Some(Duration::ZERO));
        let later = now + Duration::from_secs(9);
        assert_eq!(state.lag(later, ALLOWED), Some(Duration::from_secs(9)));
    }

    #[test]
    fn the_lag_grows_while_something_is_lacking() {
        let mut state = FollowerState::starting();
        let now = Instant::now();
        state.heard = Some(now);
        state.behind_since = now.checked_sub(Duration::from_millis(30));
        let lag = state.lag(now + Duration::from_secs(1), ALLOWED);
        assert_eq!(lag, Some(Duration::from_millis(1_030)));
    }
}
