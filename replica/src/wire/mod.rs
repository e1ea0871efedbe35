//! Between the wire's types and ours.
//!
//! The wire's types hold unchecked numbers and bytes. What arrives is checked here, once, and
//! an error names the field; what leaves is bounded here, so that every message stays below
//! [`tidegate_proto::MESSAGE_BYTES_MAX`] by construction. Nothing else in this crate touches
//! a wire type.

use tidegate_engine::Seq;
use tidegate_proto::peer::v1 as pb;

use crate::error::{Error, Result};
use crate::history::{History, Opening};
use crate::ids::{ClusterId, Epoch, NODE_ID_BYTES_MAX, Nonce};

mod compare;
mod describe;
mod handshake;
mod session;
mod stream;

pub use compare::{
    Check, CheckReply, NAME_BYTES_MAX, NamedDigest, PassBegin, PassEnd, check_result,
};
pub use describe::{Description, FollowerDescription, ProofDescription};
pub use handshake::{Accepted, Greeting, Hello, Refused};
pub use session::{Answer, Call, Failure, SessionAnswer, SessionCall};
pub use stream::{
    FromFollower, FromSource, SourceClock, ack, batch_part, follower_heartbeat, pass_request,
    repair_order,
};

/// Bytes of text for people in one field; the rest is cut off.
pub const TEXT_BYTES_MAX: usize = 4_096;
/// Bytes of an opening's reason.
const WHY_BYTES_MAX: usize = 200;

/// A position. The engine counts in `i64`, so a number beyond it is none.
fn seq(field: &'static str, value: u64) -> Result<Seq> {
    if i64::try_from(value).is_ok() {
        Ok(Seq::new(value))
    } else {
        Err(Error::invalid(field, format!("{value} is not a position")))
    }
}

/// Exactly sixteen bytes.
fn sixteen(field: &'static str, bytes: &[u8]) -> Result<[u8; 16]> {
    bytes
        .try_into()
        .map_err(|_| Error::invalid(field, format!("has {} bytes instead of 16", bytes.len())))
}

fn hash(field: &'static str, bytes: &[u8]) -> Result<u128> {
    sixteen(field, bytes).map(u128::from_be_bytes)
}

fn put_hash(hash: u128) -> Vec<u8> {
    hash.to_be_bytes().to_vec()
}

/// Empty text stands for a node without data.
fn cluster(text: &str) -> Result<Option<ClusterId>> {
    if text.is_empty() {
        Ok(None)
    } else {
        parse_cluster(text).map(Some)
    }
}

fn parse_cluster(text: &str) -> Result<ClusterId> {
    ClusterId::parse(text)
        .ok_or_else(|| Error::invalid("cluster_id", "is not 32 lower-case hexadecimal digits"))
}

fn put_cluster(cluster: Option<ClusterId>) -> String {
    cluster.map(|id| id.to_string()).unwrap_or_default()
}

fn history(openings: Vec<pb::Opening>) -> Result<History> {
    let openings = openings.into_iter().map(opening);
    History::new(openings.collect::<Result<_>>()?)
}

fn opening(opening: pb::Opening) -> Result<Opening> {
    if opening.node.len() > NODE_ID_BYTES_MAX {
        return Err(Error::invalid("history.node", "is longer than 63 bytes"));
    }
    Ok(Opening {
        epoch: Epoch::new(opening.epoch),
        nonce: Nonce::new(sixteen("history.nonce", &opening.nonce)?),
        first_seq: seq("history.first_seq", opening.first_seq)?,
        node: opening.node,
        opened_ms: opening.opened_ms,
        why: opening.why,
    })
}

fn put_history(history: &History) -> Vec<pb::Opening> {
    let put = |opening: &Opening| pb::Opening {
        epoch: opening.epoch.get(),
        nonce: opening.nonce.bytes().to_vec(),
        first_seq: opening.first_seq.get(),
        node: shorten(&opening.node, NODE_ID_BYTES_MAX),
        opened_ms: opening.opened_ms,
        why: shorten(&opening.why, WHY_BYTES_MAX),
    };
    history.openings().iter().map(put).collect()
}

/// Cuts text at a character's boundary.
fn shorten(text: &str, bytes_max: usize) -> String {
    text[..text.floor_char_boundary(bytes_max)].to_owned()
}

fn put_text(text: &str) -> String {
    shorten(text, TEXT_BYTES_MAX)
}

#[cfg(test)]
mod tests;
