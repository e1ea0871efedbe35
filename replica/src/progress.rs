//! How far a follower is, as its source knows it: sent, received, applied.
//!
//! `applied <= received <= sent` always, and none of them goes back. A follower that claims
//! otherwise is not believed: the stream ends, and nothing that depends on its word (trimming
//! the log, answering a client that waits for replicas) happens.

use tidegate_engine::Seq;

use crate::error::{Error, Result};

/// Positions of one follower in one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    sent: Seq,
    received: Seq,
    applied: Seq,
}

impl Progress {
    /// At the handshake all three are the follower's own position.
    pub fn new(applied: Seq) -> Self {
        Self {
            sent: applied,
            received: applied,
            applied,
        }
    }

    /// Position after the newest batch wholly sent.
    pub fn sent(&self) -> Seq {
        self.sent
    }

    /// Position after the newest batch that the follower holds.
    pub fn received(&self) -> Seq {
        self.received
    }

    /// Position that the follower has durably applied.
    pub fn applied(&self) -> Seq {
        self.applied
    }

    /// The last part of the batch to `to` is about to be sent.
    ///
    /// # Panics
    ///
    /// If the batch does not go on from the one before: that would be this node's own error.
    pub fn send(&mut self, from: Seq, to: Seq) {
        assert!(
            from == self.sent && to > from,
            "a batch {from}..{to} does not go on from {}",
            self.sent
        );
        self.sent = to;
    }

    /// The follower says how far it is.
    pub fn heard(&mut self, received: Seq, applied: Seq) -> Result<()> {
        let forward = received >= self.received && applied >= self.applied;
        if forward && applied <= received && received <= self.sent {
            self.received = received;
            self.applied = applied;
            Ok(())
        } else {
            Err(Error::protocol(format!(
                "the follower says it received {received} and applied {applied}, \
                 after {} and {}; {} was sent",
                self.received, self.applied, self.sent
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seq(value: u64) -> Seq {
        Seq::new(value)
    }

    #[test]
    fn a_follower_moves_forward_up_to_what_was_sent() {
        let mut progress = Progress::new(seq(5));
        progress.send(seq(5), seq(9));
        progress.send(seq(9), seq(12));
        progress.heard(seq(9), seq(5)).unwrap();
        progress.heard(seq(12), seq(9)).unwrap();
        progress.heard(seq(12), seq(9)).unwrap();
        progress.heard(seq(12), seq(12)).unwrap();
        assert_eq!(progress.applied(), seq(12));
    }

    #[test]
    fn an_acknowledgement_beyond_what_was_sent_or_backwards_is_not_believed() {
        let mut progress = Progress::new(seq(5));
        progress.send(seq(5), seq(9));
        assert!(progress.heard(seq(10), seq(5)).is_err());
        assert!(progress.heard(seq(5), seq(9)).is_err());
        progress.heard(seq(9), seq(9)).unwrap();
        assert!(progress.heard(seq(9), seq(8)).is_err());
        assert!(progress.heard(seq(8), seq(8)).is_err());
        assert_eq!(progress.applied(), seq(9));
    }

    #[test]
    #[should_panic(expected = "does not go on")]
    fn a_source_never_sends_a_batch_that_leaves_a_gap() {
        Progress::new(seq(5)).send(seq(6), seq(9));
    }
}
