//! Sending a whole database to a node that the log cannot feed, and receiving one.
//!
//! The copy is made at disk speed into an unnamed file and sent from there at the pace of
//! the network, so a slow receiver holds up no checkpoint. What arrives is believed only when
//! its length and its hash are right and the engine's integrity check passes; half a snapshot
//! is never a database.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::Engine;
use tidegate_engine::snapshot::{Checked, Content, Installer, Snapshot};
use tidegate_proto::peer::v1 as pb;
use tidegate_proto::peer::v1::snapshot_chunk::Kind;
use tidegate_proto::{PART_BYTES_MAX, PROTOCOL_VERSION};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use crate::error::{Error, Result};
use crate::followers::Followers;
use crate::ids::NodeId;
use crate::{slots, standing};

/// Chunks received and not yet written. When they are full the stream is not read.
const CHUNKS_QUEUED_MAX: usize = 8;

/// A snapshot that somebody asked for.
pub struct Outgoing {
    /// The database.
    pub engine: Arc<Engine>,
    /// This node.
    pub node: NodeId,
    /// Who follows: the log is held for whoever receives a copy.
    pub followers: Arc<Followers>,
    /// What was asked.
    pub request: pb::SnapshotRequest,
    /// Where chunks go.
    pub outbound: mpsc::Sender<Result<pb::SnapshotChunk, Status>>,
    /// One snapshot is copied at a time.
    pub one_at_a_time: Arc<Semaphore>,
    /// Bytes in one piece.
    pub part_bytes: usize,
    /// A receiver that takes nothing for this long is cut off.
    pub send_deadline: Duration,
    /// Ends it.
    pub stop: CancellationToken,
}

impl Outgoing {
    /// Copies and sends.
    pub async fn run(self) {
        let node = self.request.node_id.clone();
        let stop = self.stop.clone();
        let outbound = self.outbound.clone();
        let sent = tokio::select! {
            () = stop.cancelled() => Err(Status::unavailable("this node is stopping")),
            sent = self.send() => sent,
        };
        match sent {
            Ok(bytes) => tracing::info!(node, bytes, "a snapshot was sent"),
            Err(status) => {
                tracing::warn!(node, %status, "a snapshot was not sent");
                outbound.try_send(Err(status)).ok();
            }
        }
    }

    async fn send(self) -> Result<u64, Status> {
        let permit = self.one_at_a_time.clone().acquire_owned().await;
        let _permit = permit.map_err(|e| Status::internal(e.to_string()))?;
        let engine = self.engine.clone();
        let (request, followers) = (self.request.clone(), self.followers.clone());
        let taken = tokio::task::spawn_blocking(move || take(&engine, &followers, &request));
        let (snapshot, begin) = taken.await.map_err(|e| Status::internal(e.to_string()))??;
        let begin = pb::SnapshotBegin {
            node_id: self.node.to_string(),
            ..begin
        };
        self.put(Kind::Begin(begin)).await?;
        let content = snapshot.content();
        let snapshot = Arc::new(snapshot);
        let part_bytes = self.part_bytes.clamp(1, PART_BYTES_MAX);
        let mut offset = 0;
        while offset < content.bytes {
            let source = snapshot.clone();
            let read = tokio::task::spawn_blocking(move || read_chunk(&source, offset, part_bytes));
            let data = read.await.map_err(|e| Status::internal(e.to_string()))??;
            let length = data.len() as u64;
            self.put(Kind::Data(pb::SnapshotData {
                offset,
                crc32c: crc32c::crc32c(&data),
                data: data.into(),
            }))
            .await?;
            offset += length;
        }
        self.put(Kind::End(pb::SnapshotEnd {
            total_bytes: content.bytes,
            hash: content.hash.to_be_bytes().to_vec(),
        }))
        .await?;
        Ok(content.bytes)
    }

    async fn put(&self, kind: Kind) -> Result<(), Status> {
        let chunk = pb::SnapshotChunk { kind: Some(kind) };
        let sent = tokio::time::timeout(self.send_deadline, self.outbound.send(Ok(chunk))).await;
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Status::cancelled("the receiver is gone")),
            Err(_) => Err(Status::deadline_exceeded("the receiver takes nothing")),
        }
    }
}

/// Checks who asks, and copies the database. The log is held from before the copy on, so that
/// whoever receives it can be fed from its position when it comes back.
fn take(
    engine: &Engine,
    followers: &Arc<Followers>,
    request: &pb::SnapshotRequest,
) -> Result<(Snapshot, pb::SnapshotBegin), Status> {
    let internal = |e: Error| Status::internal(e.to_string());
    let mut connection = engine.store().reader().map_err(|e| internal(e.into()))?;
    let (ours, _) = standing::read(engine, &mut connection).map_err(internal)?;
    let Some(cluster) = ours.cluster else {
        return Err(Status::unavailable("this node has no data yet"));
    };
    let cluster = cluster.to_string();
    if request.protocol_version != PROTOCOL_VERSION {
        return Err(Status::failed_precondition(format!(
            "this node speaks version {PROTOCOL_VERSION}"
        )));
    }
    if !request.cluster_id.is_empty() && request.cluster_id != cluster {
        return Err(Status::permission_denied(
            "this node belongs to another cluster",
        ));
    }
    if let Ok(node) = NodeId::new(request.node_id.as_str()) {
        let head = engine.head().borrow().seq;
        let held = followers.hold_for_snapshot(&node, head);
        held.map_err(|e| internal(Error::Engine(e.into())))?;
        slots::save(engine, followers, &node).map_err(internal)?;
    }
    let snapshot = Snapshot::take(engine.store()).map_err(|e| internal(e.into()))?;
    let begin = pb::SnapshotBegin {
        cluster_id: cluster,
        node_id: String::new(),
        seq: snapshot.position().get(),
        bytes_estimate: snapshot.content().bytes,
    };
    Ok((snapshot, begin))
}

fn read_chunk(snapshot: &Snapshot, offset: u64, bytes: usize) -> Result<Vec<u8>, Status> {
    let mut data = vec![0; bytes];
    let length = snapshot
        .read_at(offset, &mut data)
        .map_err(|e| Status::internal(e.to_string()))?;
    data.truncate(length);
    Ok(data)
}

/// How far a snapshot on its way in is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransferProgress {
    /// Bytes received.
    pub bytes: u64,
    /// Bytes expected.
    pub expected: u64,
}

/// Receives a snapshot beside the open database and checks it. Nothing is replaced yet.
pub async fn receive(
    mut chunks: Streaming<pb::SnapshotChunk>,
    data_dir: PathBuf,
    silence_max: Duration,
    progress: impl Fn(TransferProgress),
) -> Result<Checked> {
    // The sender copies its whole database before the first chunk.
    let first = chunks.message().await?;
    let Some(Kind::Begin(begin)) = first.and_then(|chunk| chunk.kind) else {
        return Err(Error::protocol("a snapshot does not begin with Begin"));
    };
    let expected = begin.bytes_estimate;
    let (sender, receiver) = mpsc::channel(CHUNKS_QUEUED_MAX);
    let writer = tokio::task::spawn_blocking(move || write(&data_dir, expected, receiver));
    let mut bytes = 0;
    loop {
        let next = tokio::time::timeout(silence_max, chunks.message()).await;
        let next = next.map_err(|_| Error::network("the snapshot stopped arriving"))??;
        let Some(kind) = next.and_then(|chunk| chunk.kind) else {
            return Err(Error::network("the snapshot ended too early"));
        };
        let piece = match kind {
            Kind::Data(data) => {
                bytes = check_data(&data, bytes)?;
                progress(TransferProgress { bytes, expected });
                Piece::Data(data.data)
            }
            Kind::End(end) => Piece::End(content(&end)?),
            Kind::Begin(_) => return Err(Error::protocol("a second Begin")),
        };
        let is_end = matches!(piece, Piece::End(_));
        // A writer that ended early says why below.
        if sender.send(piece).await.is_err() || is_end {
            break;
        }
    }
    drop(sender);
    writer.await.map_err(Error::network)?
}

enum Piece {
    Data(prost::bytes::Bytes),
    End(Content),
}

fn write(
    data_dir: &std::path::Path,
    expected: u64,
    mut pieces: mpsc::Receiver<Piece>,
) -> Result<Checked> {
    let mut installer = Installer::begin(data_dir, expected)?;
    while let Some(piece) = pieces.blocking_recv() {
        match piece {
            Piece::Data(data) => installer.write(&data)?,
            Piece::End(content) => return Ok(installer.finish(content)?),
        }
    }
    Err(Error::network("the snapshot ended too early"))
}

/// The next piece must begin where the last one ended, and be whole.
fn check_data(data: &pb::SnapshotData, received: u64) -> Result<u64> {
    if data.offset != received {
        return Err(Error::protocol(format!(
            "a piece of the snapshot at {} arrived where {received} was due",
            data.offset
        )));
    }
    if data.data.is_empty() || data.data.len() > PART_BYTES_MAX {
        return Err(Error::invalid("snapshot_data.data", "has a wrong size"));
    }
    if crc32c::crc32c(&data.data) != data.crc32c {
        return Err(Error::protocol("a piece of the snapshot arrived damaged"));
    }
    Ok(received + data.data.len() as u64)
}

fn content(end: &pb::SnapshotEnd) -> Result<Content> {
    let hash: [u8; 16] = end
        .hash
        .as_slice()
        .try_into()
        .map_err(|_| Error::invalid("snapshot_end.hash", "has not 16 bytes"))?;
    Ok(Content {
        bytes: end.total_bytes,
        hash: u128::from_be_bytes(hash),
    })
}
