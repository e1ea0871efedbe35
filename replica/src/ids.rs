//! Names of things that nodes compare: nodes, clusters, openings, epochs, positions.
//!
//! Each is checked once, where it enters the process (configuration, the wire, the file),
//! and carries its invariant from then on.

use std::fmt;

use tidegate_engine::Seq;
pub use tidegate_engine::meta::ClusterId;

use crate::error::{Error, Result};

/// Bytes of a node's name, at most.
pub const NODE_ID_BYTES_MAX: usize = 63;

/// A node's name: 1 to 63 of `[a-z0-9._-]`. Unique in its cluster by the operator's word; what
/// two nodes of one name do to each other is visible in the logs of their source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(String);

/// Which promotion a history is at. Rises with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(u64);

/// What makes an opening unlike every other: 16 random bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce([u8; 16]);

/// Tells one run of a process from another: 16 random bytes made at its start.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BootId([u8; 16]);

/// A place in the log of one cluster's history. Two positions compare only if one node knows
/// both to be on one history; so there is no order here, only equality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The cluster.
    pub cluster: ClusterId,
    /// The epoch in which the place was written.
    pub epoch: Epoch,
    /// The place in the log.
    pub seq: Seq,
}

impl NodeId {
    /// Checks a name.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
        let length_ok = (1..=NODE_ID_BYTES_MAX).contains(&name.len());
        if length_ok && name.bytes().all(allowed) {
            Ok(Self(name))
        } else {
            Err(Error::invalid(
                "node_id",
                "is not 1 to 63 of the characters a-z, 0-9, '.', '_', '-'",
            ))
        }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Epoch {
    /// From a number of the history.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// As a number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Nonce {
    /// From random bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// As bytes.
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl BootId {
    /// From random bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// As bytes.
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl Position {
    /// From the form in which clients carry it: `<cluster>:<epoch>:<seq>`.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || Error::invalid("position", "is not <cluster>:<epoch>:<seq>");
        let mut parts = text.splitn(3, ':');
        let mut part = || parts.next().ok_or_else(wrong);
        Ok(Self {
            cluster: ClusterId::parse(part()?).ok_or_else(wrong)?,
            epoch: Epoch(part()?.parse().map_err(|_| wrong())?),
            seq: Seq::new(part()?.parse().map_err(|_| wrong())?),
        })
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.cluster, self.epoch, self.seq)
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

fn write_hex(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_id_has_few_characters_and_at_most_63() {
        assert!(NodeId::new("n1").is_ok());
        assert!(NodeId::new("db-0.tidegate_x").is_ok());
        assert!(NodeId::new("a".repeat(63)).is_ok());
        for wrong in ["", "N1", "a b", "ä", "n/1", "n\n", &"a".repeat(64)] {
            assert!(NodeId::new(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_position_reads_back_as_written() {
        let position = Position {
            cluster: ClusterId::from_bytes([7; 16]),
            epoch: Epoch::new(3),
            seq: Seq::new(918_240),
        };
        assert_eq!(Position::parse(&position.to_string()).unwrap(), position);
        for wrong in ["", "::", "1:2:3", &format!("{}:x:1", "0".repeat(32))] {
            assert!(Position::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
