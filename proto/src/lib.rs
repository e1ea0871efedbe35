//! `tidegate-proto`: what travels between the nodes of a cluster, and nothing else.
//!
//! The definition is `proto/tidegate/peer/v1/peer.proto`; its head says the rules. The
//! generated code is committed, so that building Tidegate needs no protobuf compiler; a test
//! generates it anew and compares. `UPDATE_PROTO=1 cargo nextest run --workspace
//! --cargo-profile release -E 'package(tidegate-proto)'` rewrites it.
//!
//! Types here are as the wire gives them: unchecked numbers and bytes. Whoever receives one
//! turns it into a type with an invariant at once (`tidegate_replica::wire`).

/// Version 1 of the peer protocol.
pub mod peer {
    /// Version 1.
    #[allow(missing_docs, clippy::all)]
    #[rustfmt::skip]
    pub mod v1 {
        include!("generated/tidegate.peer.v1.rs");
    }
}

/// Version of the peer protocol that this crate holds.
pub const PROTOCOL_VERSION: u32 = 1;

/// Name of the metadata entry that carries the version of the protocol.
pub const PROTOCOL_METADATA: &str = "tidegate-protocol";

/// No message is larger. Both sides set it as their limit in both directions.
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of payload in one part of a batch or a snapshot.
pub const PART_BYTES_MAX: usize = 256 * 1024;

/// The definition in binary form, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/descriptor.bin");
