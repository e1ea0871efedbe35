//! The gRPC server of a node: it feeds followers, gives snapshots, runs forwarded
//! sessions, and describes the node.
//!
//! Health service and reflection are on, so that `grpcurl` and probes work without files.
//! Limits of messages are set explicitly in both directions; sockets have TCP_NODELAY;
//! HTTP/2 pings find dead connections.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Engine, clock};
use tidegate_proto::peer::v1 as pb;
use tidegate_proto::peer::v1::replication_server::{Replication, ReplicationServer};
use tidegate_proto::{FILE_DESCRIPTOR_SET, MESSAGE_BYTES_MAX, PROTOCOL_METADATA, PROTOCOL_VERSION};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use crate::error::{Error, Result};
use crate::followers::{FollowerStatus, Followers};
use crate::greeting;
use crate::history::Standing;
use crate::ids::{BootId, NodeId};
use crate::proof::PassReport;
use crate::session_service::IncomingSession;
use crate::settings::Settings;
use crate::standing;
use crate::transfer;
use crate::wire::{Description, FollowerDescription, ProofDescription};

/// What a node says of itself beside what its database says.
#[derive(Debug, Clone, Default)]
pub struct NodeFacts {
    /// Version of the daemon.
    pub version: String,
    /// primary, replica, witness.
    pub role: String,
    /// One word of the list of states.
    pub state: String,
    /// One word of the list of reasons.
    pub reason: String,
    /// For people.
    pub detail: String,
    /// The node it follows.
    pub source: Option<NodeId>,
    /// Its own proof.
    pub proof: Option<ProofDescription>,
    /// It holds a valid proof, or needs none because it may write.
    pub is_proven: bool,
}

/// A follower that was turned away for what its history says about this node's.
#[derive(Debug, Clone)]
pub struct Met {
    /// Its name.
    pub node: NodeId,
    /// Where it stands.
    pub standing: Standing,
}

/// What the server needs.
#[derive(Clone)]
pub struct Peer {
    /// This node's name.
    pub node: NodeId,
    /// Tells this run of the process from others.
    pub boot: BootId,
    /// The open database, if it is open. Streams end when it is closed.
    pub engine: watch::Receiver<Option<Arc<Engine>>>,
    /// What this node says of itself.
    pub facts: watch::Receiver<NodeFacts>,
    /// Who follows.
    pub followers: Arc<Followers>,
    /// The last one whose history contradicts this node's; whoever decides about roles reads it.
    pub met: watch::Sender<Option<Met>>,
    /// Bounds.
    pub settings: Settings,
}

/// Time for the last messages of streams to leave once the node stops.
const STREAMS_END_MAX: Duration = Duration::from_secs(1);

/// Serves until `stop`; streams end at once then.
pub async fn serve(listener: TcpListener, peer: Peer, stop: CancellationToken) -> Result<()> {
    let settings = peer.settings;
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<ReplicationServer<PeerService>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(Error::network)?;
    let service = ReplicationServer::new(PeerService::new(peer, stop.clone()))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let served = Server::builder()
        .http2_keepalive_interval(Some(settings.ping_interval))
        .http2_keepalive_timeout(Some(settings.ping_deadline))
        .max_concurrent_streams(streams_of_one_connection(&settings))
        .max_frame_size(Some(1 << 20))
        .add_service(health_service)
        .add_service(reflection)
        .add_service(service)
        .serve_with_incoming_shutdown(
            TcpIncoming::from(listener).with_nodelay(Some(true)),
            stop.clone().cancelled_owned(),
        );
    tokio::select! {
        served = served => served.map_err(Error::network),
        () = overdue(&stop) => {
            tracing::info!("a peer that takes nothing was left alone");
            Ok(())
        }
    }
}

/// What is queued for a slow peer must not hold up the end of the process.
async fn overdue(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(STREAMS_END_MAX).await;
}

/// The service itself.
pub struct PeerService {
    peer: Peer,
    stop: CancellationToken,
    /// A snapshot copies the whole database to disk: one at a time.
    snapshots: Arc<Semaphore>,
    /// One permit for each forwarded session.
    sessions: Arc<Semaphore>,
}

impl PeerService {
    fn new(peer: Peer, stop: CancellationToken) -> Self {
        Self {
            snapshots: Arc::new(Semaphore::new(1)),
            sessions: Arc::new(Semaphore::new(peer.settings.sessions_max)),
            peer,
            stop,
        }
    }

    fn engine(&self) -> Result<Arc<Engine>, Status> {
        let engine = self.peer.engine.borrow().clone();
        engine.ok_or_else(|| Status::unavailable("this node has no database open at the moment"))
    }
}

#[tonic::async_trait]
impl Replication for PeerService {
    type FollowStream = ReceiverStream<Result<pb::SourceMessage, Status>>;
    type SnapshotStream = ReceiverStream<Result<pb::SnapshotChunk, Status>>;
    type SessionStream = ReceiverStream<Result<pb::SessionReply, Status>>;

    async fn follow(
        &self,
        request: Request<Streaming<pb::FollowerMessage>>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        check_version(&request)?;
        let engine = self.engine()?;
        let (sender, receiver) = mpsc::channel(self.peer.settings.messages_queued_max);
        let stream = greeting::Incoming {
            peer: self.peer.clone(),
            engine,
            messages: request.into_inner(),
            outbound: sender,
            stop: self.stop.child_token(),
        };
        tokio::spawn(stream.run());
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn snapshot(
        &self,
        request: Request<pb::SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        check_version(&request)?;
        let engine = self.engine()?;
        let (sender, receiver) = mpsc::channel(self.peer.settings.messages_queued_max);
        let outgoing = transfer::Outgoing {
            engine,
            node: self.peer.node.clone(),
            followers: self.peer.followers.clone(),
            request: request.into_inner(),
            outbound: sender,
            one_at_a_time: self.snapshots.clone(),
            part_bytes: self.peer.settings.snapshot_part_bytes,
            send_deadline: self.peer.settings.send_deadline,
            stop: self.stop.child_token(),
        };
        tokio::spawn(outgoing.run());
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn session(
        &self,
        request: Request<Streaming<pb::SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        check_version(&request)?;
        let (sender, receiver) = mpsc::channel(self.peer.settings.messages_queued_max);
        let incoming = IncomingSession {
            node: self.peer.node.clone(),
            engine: self.peer.engine.clone(),
            settings: self.peer.settings,
            permits: self.sessions.clone(),
            messages: request.into_inner(),
            outbound: sender,
            stop: self.stop.child_token(),
        };
        tokio::spawn(incoming.run());
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn describe(
        &self,
        request: Request<pb::DescribeRequest>,
    ) -> Result<Response<pb::DescribeReply>, Status> {
        check_version(&request)?;
        let peer = self.peer.clone();
        let described = tokio::task::spawn_blocking(move || describe(&peer)).await;
        let description = described
            .map_err(|e| Status::internal(e.to_string()))?
            .map_err(|e| Status::internal(e.to_string()))?;
        Ok(Response::new(description.encode()))
    }
}

/// A replica forwards all its sessions over one connection, and none may wait for another.
fn streams_of_one_connection(settings: &Settings) -> u32 {
    let sessions = u32::try_from(settings.sessions_max).unwrap_or(u32::MAX);
    settings.streams_max.saturating_add(sessions)
}

/// Absent means this version; another one is refused before anything is read.
fn check_version<T>(request: &Request<T>) -> Result<(), Status> {
    let Some(version) = request.metadata().get(PROTOCOL_METADATA) else {
        return Ok(());
    };
    if version.as_bytes() == PROTOCOL_VERSION.to_string().as_bytes() {
        return Ok(());
    }
    Err(Status::failed_precondition(format!(
        "{PROTOCOL_METADATA} is {version:?}; this node speaks version {PROTOCOL_VERSION}"
    )))
}

/// This node as it describes itself. Reads the database: call it where blocking is allowed.
pub fn describe(peer: &Peer) -> Result<Description> {
    let facts = peer.facts.borrow().clone();
    let engine = peer.engine.borrow().clone();
    let mut description = Description {
        version: facts.version,
        cluster: None,
        node: peer.node.clone(),
        boot: Some(peer.boot),
        is_open: false,
        role: facts.role,
        state: facts.state,
        reason: facts.reason,
        detail: facts.detail,
        history: Default::default(),
        head: Default::default(),
        floor: Default::default(),
        followers: Vec::new(),
        source: facts.source,
        proof: facts.proof,
        clock_ms: u64::try_from(clock::now_ms()).unwrap_or(0),
    };
    if let Some(engine) = engine {
        let mut connection = engine.store().reader()?;
        let (standing, source) = standing::read(&engine, &mut connection)?;
        description.is_open = true;
        description.cluster = standing.cluster;
        description.history = standing.history;
        description.head = standing.seq;
        description.floor = source.floor;
    }
    let followers = peer.followers.status();
    let followers = followers.borrow();
    description.followers = followers
        .iter()
        .map(|(node, status)| describe_follower(node, status, description.head))
        .collect();
    Ok(description)
}

fn describe_follower(
    node: &NodeId,
    status: &FollowerStatus,
    head: tidegate_engine::Seq,
) -> FollowerDescription {
    let now = std::time::Instant::now();
    FollowerDescription {
        node: node.clone(),
        connected: status.connected,
        sent: status.sent,
        received: status.received,
        applied: status.applied,
        heard_ago_ms: millis_since(status.heard, now),
        lag_ms: status.lag_ms_at(head, now),
        proof: status
            .report
            .as_ref()
            .map(|report| describe_report(report, now)),
    }
}

fn describe_report(report: &PassReport, now: std::time::Instant) -> ProofDescription {
    ProofDescription {
        verdict: Some(report.verdict),
        at_seq: report.at_seq,
        age_ms: millis_since(report.ended, now),
        valid: report.verdict == crate::proof::Verdict::Equal,
        text: report.summary(),
    }
}

fn millis_since(then: std::time::Instant, now: std::time::Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(then).as_millis()).unwrap_or(u64::MAX)
}
