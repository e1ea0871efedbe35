//! What flows once the handshake is done.

use prost::bytes::Bytes;
use tidegate_engine::Seq;
use tidegate_proto::PART_BYTES_MAX;
use tidegate_proto::peer::v1 as pb;

use super::compare::{Check, CheckReply, PassBegin, PassEnd};
use super::handshake::{Accepted, Hello, Refused, snapshot_reason};
use super::{hash, put_hash, seq};
use crate::error::{Error, Result};
use crate::history::SnapshotReason;
use crate::intake::{BatchEnd, PartHead};

/// A message of a follower.
#[derive(Debug)]
pub enum FromFollower {
    /// The first one.
    Hello(Hello),
    /// How far it is: after a commit, or to show that it is alive.
    Progress {
        /// Wholly here.
        received: Seq,
        /// Durably applied.
        applied: Seq,
    },
    /// An answer to a step of a pass.
    CheckReply(CheckReply),
    /// It wants a pass.
    PassRequest {
        /// One that takes its time.
        background: bool,
    },
}

/// A message of a source.
#[derive(Debug)]
pub enum FromSource {
    /// The stream begins.
    Accepted(Accepted),
    /// A snapshot first.
    SnapshotRequired(SnapshotReason, String),
    /// Not here.
    Refused(Refused),
    /// A piece of a batch.
    Part(PartHead, Bytes),
    /// Alive.
    Heartbeat(SourceClock),
    /// A pass begins.
    PassBegin(PassBegin),
    /// A range to compare.
    Check(Check),
    /// A pass ends.
    PassEnd(PassEnd),
    /// An operator wants the source's side here.
    RepairOrder(String),
}

/// What a source says about its log and its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceClock {
    /// Newest position.
    pub head: Seq,
    /// Positions below cannot be fed.
    pub floor: Seq,
    /// The source's clock, milliseconds.
    pub now_ms: u64,
    /// When the head was committed, on the same clock; 0 if unknown.
    pub head_committed_ms: u64,
}

impl FromFollower {
    /// Checks a message.
    pub fn decode(message: pb::FollowerMessage) -> Result<Self> {
        use pb::follower_message::Kind;
        Ok(match message.kind {
            Some(Kind::Hello(hello)) => Self::Hello(Hello::decode(hello)?),
            Some(Kind::Ack(ack)) => progress(ack.received_seq, ack.applied_seq)?,
            Some(Kind::Heartbeat(beat)) => progress(beat.received_seq, beat.applied_seq)?,
            Some(Kind::CheckResult(result)) => Self::CheckReply(CheckReply::decode(result)?),
            Some(Kind::PassRequest(request)) => Self::PassRequest {
                background: request.background,
            },
            None => return Err(Error::protocol("a message of an unknown kind")),
        })
    }
}

impl FromSource {
    /// Checks a message.
    pub fn decode(message: pb::SourceMessage) -> Result<Self> {
        use pb::source_message::Kind;
        Ok(match message.kind {
            Some(Kind::Accepted(accepted)) => Self::Accepted(Accepted::decode(accepted)?),
            Some(Kind::SnapshotRequired(required)) => {
                Self::SnapshotRequired(snapshot_reason(&required)?, required.text)
            }
            Some(Kind::Refused(refused)) => Self::Refused(Refused::decode(refused)?),
            Some(Kind::BatchPart(part)) => part_of(part)?,
            Some(Kind::Heartbeat(beat)) => Self::Heartbeat(SourceClock {
                head: seq("heartbeat.head_seq", beat.head_seq)?,
                floor: seq("heartbeat.floor_seq", beat.floor_seq)?,
                now_ms: beat.clock_ms,
                head_committed_ms: beat.head_committed_ms,
            }),
            Some(Kind::PassBegin(begin)) => Self::PassBegin(PassBegin::decode(begin)?),
            Some(Kind::Check(check)) => Self::Check(Check::decode(check)?),
            Some(Kind::PassEnd(end)) => Self::PassEnd(PassEnd::decode(end)?),
            Some(Kind::RepairOrder(order)) => Self::RepairOrder(order.why),
            None => return Err(Error::protocol("a message of an unknown kind")),
        })
    }
}

impl SourceClock {
    /// A heartbeat.
    pub fn encode(&self) -> pb::SourceMessage {
        let beat = pb::SourceHeartbeat {
            head_seq: self.head.get(),
            floor_seq: self.floor.get(),
            clock_ms: self.now_ms,
            head_committed_ms: self.head_committed_ms,
        };
        pb::SourceMessage {
            kind: Some(pb::source_message::Kind::Heartbeat(beat)),
        }
    }
}

/// A piece of a batch.
pub fn batch_part(head: &PartHead, data: Bytes) -> pb::SourceMessage {
    let end = head.end.map(|end| pb::BatchEnd {
        total_bytes: end.total_bytes,
        hash: put_hash(end.hash),
        committed_ms: end.committed_ms,
    });
    let part = pb::BatchPart {
        from_seq: head.from.get(),
        to_seq: head.to.get(),
        offset: head.offset,
        data,
        crc32c: head.crc32c,
        end,
    };
    pb::SourceMessage {
        kind: Some(pb::source_message::Kind::BatchPart(part)),
    }
}

/// Tells the follower to take over the source's side.
pub fn repair_order(why: &str) -> pb::SourceMessage {
    let order = pb::RepairOrder {
        why: super::put_text(why),
    };
    pb::SourceMessage {
        kind: Some(pb::source_message::Kind::RepairOrder(order)),
    }
}

/// Durably applied.
pub fn ack(received: Seq, applied: Seq) -> pb::FollowerMessage {
    let ack = pb::Ack {
        applied_seq: applied.get(),
        received_seq: received.get(),
    };
    pb::FollowerMessage {
        kind: Some(pb::follower_message::Kind::Ack(ack)),
    }
}

/// Alive.
pub fn follower_heartbeat(received: Seq, applied: Seq) -> pb::FollowerMessage {
    let beat = pb::FollowerHeartbeat {
        applied_seq: applied.get(),
        received_seq: received.get(),
    };
    pb::FollowerMessage {
        kind: Some(pb::follower_message::Kind::Heartbeat(beat)),
    }
}

/// Asks for a pass.
pub fn pass_request(why: &str, background: bool) -> pb::FollowerMessage {
    let request = pb::PassRequest {
        why: super::put_text(why),
        background,
    };
    pb::FollowerMessage {
        kind: Some(pb::follower_message::Kind::PassRequest(request)),
    }
}

fn progress(received: u64, applied: u64) -> Result<FromFollower> {
    Ok(FromFollower::Progress {
        received: seq("received_seq", received)?,
        applied: seq("applied_seq", applied)?,
    })
}

fn part_of(part: pb::BatchPart) -> Result<FromSource> {
    if part.data.len() > PART_BYTES_MAX {
        return Err(Error::invalid(
            "batch_part.data",
            format!("has {} bytes, more than {PART_BYTES_MAX}", part.data.len()),
        ));
    }
    if part.data.is_empty() && part.end.is_none() {
        return Err(Error::invalid("batch_part.data", "is empty"));
    }
    let end = match part.end {
        Some(end) => Some(BatchEnd {
            total_bytes: end.total_bytes,
            hash: hash("batch_end.hash", &end.hash)?,
            committed_ms: end.committed_ms,
        }),
        None => None,
    };
    let head = PartHead {
        from: seq("batch_part.from_seq", part.from_seq)?,
        to: seq("batch_part.to_seq", part.to_seq)?,
        offset: part.offset,
        crc32c: part.crc32c,
        end,
    };
    if head.to <= head.from {
        return Err(Error::invalid(
            "batch_part.to_seq",
            format!("{} is not after {}", head.to, head.from),
        ));
    }
    Ok(FromSource::Part(head, part.data))
}
