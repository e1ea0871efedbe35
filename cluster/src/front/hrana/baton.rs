//! Batons: tickets that name a stream between two HTTP requests.
//!
//! ```text
//! base64url( version 1 | node 4 bytes | process 8 bytes | epoch 8 bytes | ticket 16 bytes )
//! ```
//!
//! The ticket is random and good for one use; the other fields only let a node say *why* it
//! knows no such stream. A baton of an earlier process or epoch of this node is *lost*: its
//! transaction died uncommitted, so the client may run it again. A baton of another node
//! says nothing about its transaction.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const VERSION: u8 = 1;
const LENGTH: usize = 1 + 4 + 8 + 8 + 16;

/// Random, unguessable, used once.
pub type Ticket = [u8; 16];

/// Makes and reads the batons of one node in one process.
#[derive(Debug, Clone)]
pub struct Issuer {
    node: [u8; 4],
    process: [u8; 8],
}

/// What a baton turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Issued by this process in this epoch.
    Ours(Ticket),
    /// Issued by an earlier process, or in another epoch, of this node.
    Lost,
    /// Issued by another node.
    Elsewhere,
    /// Not a baton.
    Garbage,
}

impl Issuer {
    /// For a node's name and this process.
    pub fn new(node: &str) -> Self {
        Self {
            node: node_mark(node),
            process: random(),
        }
    }

    /// A fresh ticket and its baton.
    pub fn issue(&self, epoch: u64) -> (Ticket, String) {
        let ticket: Ticket = random();
        let mut bytes = [0u8; LENGTH];
        bytes[0] = VERSION;
        bytes[1..5].copy_from_slice(&self.node);
        bytes[5..13].copy_from_slice(&self.process);
        bytes[13..21].copy_from_slice(&epoch.to_le_bytes());
        bytes[21..].copy_from_slice(&ticket);
        (ticket, URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Reads a baton that a client sent.
    pub fn read(&self, baton: &str, epoch: u64) -> Reading {
        // A text of another length is no baton; this also bounds the decoding.
        let mut bytes = [0u8; LENGTH + 2];
        match URL_SAFE_NO_PAD.decode_slice(baton, &mut bytes) {
            Ok(LENGTH) if bytes[0] == VERSION => {}
            _ => return Reading::Garbage,
        }
        if bytes[1..5] != self.node {
            Reading::Elsewhere
        } else if bytes[5..13] != self.process || bytes[13..21] != epoch.to_le_bytes() {
            Reading::Lost
        } else {
            Reading::Ours(bytes[21..LENGTH].try_into().expect("sixteen bytes"))
        }
    }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    bytes
}

/// FNV-1a; only to tell nodes apart in messages.
fn node_mark(node: &str) -> [u8; 4] {
    node.bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
        .to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_baton_names_its_ticket_only_to_its_process_and_epoch() {
        let issuer = Issuer::new("n1");
        let (ticket, baton) = issuer.issue(3);
        assert_eq!(issuer.read(&baton, 3), Reading::Ours(ticket));
        assert_eq!(issuer.read(&baton, 4), Reading::Lost);
        assert_eq!(Issuer::new("n1").read(&baton, 3), Reading::Lost);
        assert_eq!(Issuer::new("n2").read(&baton, 3), Reading::Elsewhere);
    }

    #[test]
    fn no_two_batons_are_alike_and_garbage_is_told() {
        let issuer = Issuer::new("n1");
        assert_ne!(issuer.issue(1).1, issuer.issue(1).1);
        for garbage in ["", "x", "////", &"A".repeat(50), &"A".repeat(1_000_000)] {
            assert_eq!(issuer.read(garbage, 1), Reading::Garbage);
        }
    }
}
