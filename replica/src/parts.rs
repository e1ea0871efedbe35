//! Messages of any size over a stream of bounded ones. Pure.
//!
//! A forwarded statement may carry a value of many megabytes, and so may its result. What
//! fits travels as it is; what does not is encoded, cut into parts, and put together again on
//! the other side, up to a limit that the receiver sets.

use prost::Message;
use tidegate_proto::PART_BYTES_MAX;
use tidegate_proto::peer::v1 as pb;
use tidegate_proto::peer::v1::session_reply::Kind as ReplyKind;
use tidegate_proto::peer::v1::session_request::Kind as RequestKind;

use crate::error::{Error, Result};

/// A message that can travel in parts.
pub trait Parted: Message + Default + Send {
    /// A message that is one part.
    fn of_part(part: pb::SessionPart) -> Self;
    /// The part, or else the message.
    fn into_part(self) -> Result<pb::SessionPart, Box<Self>>;
}

/// Cuts a message into those that are sent in its place.
pub fn cut<M: Parted>(message: M) -> impl Iterator<Item = M> + Send {
    let whole = message.encoded_len() <= PART_BYTES_MAX;
    let (one, bytes) = match whole {
        true => (Some(message), Vec::new()),
        false => (None, message.encode_to_vec()),
    };
    let count = bytes.len().div_ceil(PART_BYTES_MAX);
    let parts = (0..count).map(move |index| {
        let start = index * PART_BYTES_MAX;
        let end = bytes.len().min(start + PART_BYTES_MAX);
        M::of_part(pb::SessionPart {
            data: bytes[start..end].to_vec(),
            is_last: index + 1 == count,
        })
    });
    one.into_iter().chain(parts)
}

/// Puts parts together.
#[derive(Debug)]
pub struct Joiner {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Joiner {
    /// For messages of at most so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            bytes_max,
        }
    }

    /// Takes what arrived; gives a message when it is complete.
    pub fn push<M: Parted>(&mut self, message: M) -> Result<Option<M>> {
        let part = match message.into_part() {
            Ok(part) => part,
            Err(message) if self.bytes.is_empty() => return Ok(Some(*message)),
            Err(_) => return Err(Error::protocol("a message between two parts of another")),
        };
        if self.bytes.len() + part.data.len() > self.bytes_max {
            return Err(Error::protocol(format!(
                "a message in parts is larger than {} bytes",
                self.bytes_max
            )));
        }
        self.bytes.extend_from_slice(&part.data);
        if !part.is_last {
            return Ok(None);
        }
        let bytes = std::mem::take(&mut self.bytes);
        M::decode(bytes.as_slice())
            .map(Some)
            .map_err(|e| Error::protocol(format!("a message in parts: {e}")))
    }
}

impl Parted for pb::SessionRequest {
    fn of_part(part: pb::SessionPart) -> Self {
        Self {
            state: None,
            kind: Some(RequestKind::Part(part)),
        }
    }

    fn into_part(self) -> Result<pb::SessionPart, Box<Self>> {
        match self.kind {
            Some(RequestKind::Part(part)) => Ok(part),
            _ => Err(Box::new(self)),
        }
    }
}

impl Parted for pb::SessionReply {
    fn of_part(part: pb::SessionPart) -> Self {
        Self {
            kind: Some(ReplyKind::Part(part)),
            ..Self::default()
        }
    }

    fn into_part(self) -> Result<pb::SessionPart, Box<Self>> {
        match self.kind {
            Some(ReplyKind::Part(part)) => Ok(part),
            _ => Err(Box::new(self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(bytes: usize) -> pb::SessionRequest {
        pb::SessionRequest {
            state: None,
            kind: Some(RequestKind::Script(pb::SessionScript {
                sql: "x".repeat(bytes),
            })),
        }
    }

    #[test]
    fn a_message_of_any_size_arrives_whole_in_bounded_pieces() {
        for bytes in [0, 1, PART_BYTES_MAX, PART_BYTES_MAX * 2, 3_000_000] {
            let mut joiner = Joiner::new(4 << 20);
            let mut arrived = Vec::new();
            for piece in cut(script(bytes)) {
                assert!(piece.encoded_len() < PART_BYTES_MAX + 64);
                arrived.extend(joiner.push(piece).expect("in order"));
            }
            assert_eq!(arrived, [script(bytes)]);
        }
    }

    #[test]
    fn more_than_the_receiver_takes_is_an_error() {
        let mut joiner = Joiner::new(1 << 20);
        let outcomes: Vec<_> = cut(script(2 << 20)).map(|p| joiner.push(p)).collect();
        assert!(outcomes.iter().any(Result::is_err));
    }
}
