//! Who may follow, what a snapshot brings, and what ends a stream.

mod common;

use std::pin::Pin;

use common::{PATIENCE, Primary, Replica, assert_equal, boot_id, node_id, settings};
use tidegate_engine::Seq;
use tidegate_proto::peer::v1 as pb;
use tidegate_proto::peer::v1::replication_client::ReplicationClient;
use tidegate_proto::peer::v1::replication_server::{Replication, ReplicationServer};
use tidegate_replica::dial;
use tidegate_replica::history::{History, Refusal, Standing};
use tidegate_replica::intake::{BatchEnd, PartHead};
use tidegate_replica::state::Phase;
use tidegate_replica::wire::{self, Accepted, Greeting, Hello};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_cluster_is_refused_before_any_data() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Primary::start(&dir.path().join("n1")).await;
    let other = Primary::start(&dir.path().join("other")).await;
    other.run(&["CREATE TABLE t (v)"]).await;
    let replica = Replica::start(&dir.path().join("n2"), &ours.url());
    replica.until_level(&ours).await;
    replica.stop().await;
    let replica = Replica::start(&dir.path().join("n2"), &other.url());
    let wrong = Phase::Refused(Refusal::WrongCluster);
    let state = replica.until("refused", |s| s.phase == wrong).await;
    assert_eq!((state.connects, state.batches_applied), (0, 0));
    replica.stop().await;
    ours.stop().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dials_its_own_name_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Primary::start(&dir.path().join("n1")).await;
    let replica = Replica::start_as(&dir.path().join("n2"), &primary.url(), "n1", settings());
    let itself = Phase::Refused(Refusal::Itself);
    replica.until("refused", |s| s.phase == itself).await;
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_below_the_floor_receives_a_snapshot_and_follows() {
    let dir = tempfile::tempdir().unwrap();
    let before = [
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v)",
        "INSERT INTO t VALUES (1, 'from before'), (900, zeroblob(3000000))",
        "CREATE TRIGGER tr AFTER INSERT ON t BEGIN UPDATE t SET v = 'seen' WHERE id = new.id; END",
    ];
    let primary = Primary::adopt(&dir.path().join("n1"), &before).await;
    primary.run(&["INSERT INTO t VALUES (2, 'after')"]).await;
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    let state = replica.until_level(&primary).await;
    assert_eq!(state.snapshots, 1);
    primary.run(&["INSERT INTO t VALUES (3, 'live')"]).await;
    replica.until("proven", |s| s.proof.equal.is_some()).await;
    replica.until_level(&primary).await;
    assert_equal(&primary, &replica);

    // Once is enough: after a restart it goes on from the log.
    replica.stop().await;
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    assert_eq!(replica.until_level(&primary).await.snapshots, 0);
    assert_equal(&primary, &replica);
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_claims_more_than_it_was_sent_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Primary::start(&dir.path().join("n1")).await;
    primary.run(&["CREATE TABLE t (v)"]).await;
    let mut client = dial::dial(&primary.url(), &settings()).await.unwrap();
    let (out, outgoing) = mpsc::channel(8);
    out.send(hello("n2").encode()).await.unwrap();
    let far = Seq::new(1_000_000);
    out.send(wire::ack(far, far)).await.unwrap();
    let stream = client.follow(ReceiverStream::new(outgoing)).await.unwrap();
    let status = last_word(stream.into_inner()).await;
    assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status:?}");
    let known = primary.until("cut off", |f| !f.connected).await;
    assert_eq!(known.applied, Seq::ZERO);
    assert!(known.ended.contains("1000000"), "{}", known.ended);
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_beyond_the_limit_is_not_even_read() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Primary::start(&dir.path().join("n1")).await;
    let channel = tonic::transport::Endpoint::from_shared(primary.url()).unwrap();
    let mut client = ReplicationClient::new(channel.connect().await.unwrap());
    let mut message = hello("n2").encode();
    if let Some(pb::follower_message::Kind::Hello(hello)) = &mut message.kind {
        hello.capabilities = vec!["x".repeat(1 << 20)];
    }
    let (out, outgoing) = mpsc::channel(8);
    out.send(message).await.unwrap();
    let stream = client.follow(ReceiverStream::new(outgoing)).await.unwrap();
    let status = last_word(stream.into_inner()).await;
    assert!(status.message().contains("too large"), "{status:?}");
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_describes_itself_and_its_followers() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Primary::start(&dir.path().join("n1")).await;
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    replica.until("proven", |s| s.proof.equal.is_some()).await;
    primary.until("known", |f| f.report.is_some()).await;
    let described = dial::describe(&primary.url(), "test", &settings())
        .await
        .unwrap();
    assert_eq!(
        (described.node, described.role.as_str()),
        (node_id("n1"), "primary")
    );
    assert_eq!(described.history.openings().len(), 1);
    assert_eq!(described.followers.len(), 1);
    assert!(described.followers[0].proof.as_ref().unwrap().valid);
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_batch_ends_the_stream_and_nothing_of_it_is_applied() {
    for damage in [Damage::Crc, Damage::Hash, Damage::Gap] {
        let dir = tempfile::tempdir().unwrap();
        let address = serve_damaged(damage).await;
        let replica = Replica::start(&dir.path().join("n2"), &format!("http://{address}"));
        let state = replica.until("noticed", |s| s.failures > 0).await;
        assert_eq!((state.applied, state.batches_applied), (Seq::ZERO, 0));
        assert!(state.connects > 0);
        replica.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_cannot_be_applied_stalls_the_node_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let address = serve_damaged(Damage::NotABatch).await;
    let replica = Replica::start(&dir.path().join("n2"), &format!("http://{address}"));
    let state = replica
        .until("stalled", |s| s.phase == Phase::Stalled)
        .await;
    assert_eq!(state.applied, Seq::ZERO);
    assert!(!state.detail.is_empty());
    replica.stop().await;
}

fn hello(name: &str) -> Hello {
    Hello {
        protocol_version: 1,
        node: node_id(name),
        boot: boot_id(),
        standing: Standing {
            cluster: None,
            history: History::default(),
            seq: Seq::ZERO,
        },
    }
}

/// Reads a stream to its end; the end must say why.
async fn last_word(mut stream: Streaming<pb::SourceMessage>) -> Status {
    let reading = async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended without a reason"),
                Err(status) => return status,
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("it ends")
}

/// What is wrong with the batch of a source that does not keep the rules.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Crc,
    Hash,
    Gap,
    NotABatch,
}

struct Damaged(Damage);

type Chunks<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Replication for Damaged {
    type FollowStream = Chunks<pb::SourceMessage>;
    type SnapshotStream = Chunks<pb::SnapshotChunk>;
    type SessionStream = tokio_stream::Empty<Result<pb::SessionReply, Status>>;

    async fn session(
        &self,
        _: tonic::Request<Streaming<pb::SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        Err(Status::unimplemented("a damaged source has no sessions"))
    }

    async fn follow(
        &self,
        _: Request<Streaming<pb::FollowerMessage>>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let accepted = Greeting::Accepted(Accepted {
            cluster: tidegate_replica::ids::ClusterId::from_bytes([3; 16]),
            node: node_id("n1"),
            history: History::default(),
            head: Seq::new(5),
            floor: Seq::ZERO,
            heartbeat_interval_ms: 100,
            source_is_proven: true,
        });
        let (out, messages) = mpsc::channel(8);
        out.send(Ok(accepted.encode())).await.ok();
        out.send(Ok(damaged_part(self.0))).await.ok();
        // Held open: the follower has to end it.
        tokio::spawn(async move { out.closed().await });
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }

    async fn snapshot(
        &self,
        _: Request<pb::SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn describe(
        &self,
        _: Request<pb::DescribeRequest>,
    ) -> Result<Response<pb::DescribeReply>, Status> {
        Err(Status::unimplemented("not here"))
    }
}

fn damaged_part(damage: Damage) -> pb::SourceMessage {
    let data: &'static [u8] = b"this is not a batch";
    let mut head = PartHead {
        from: Seq::ZERO,
        to: Seq::new(5),
        offset: 0,
        crc32c: crc32c::crc32c(data),
        end: Some(BatchEnd {
            total_bytes: data.len() as u64,
            hash: xxhash_rust::xxh3::xxh3_128(data),
            committed_ms: 0,
        }),
    };
    match damage {
        Damage::Crc => head.crc32c ^= 1,
        Damage::Hash => head.end.as_mut().unwrap().hash ^= 1,
        Damage::Gap => head.from = Seq::new(2),
        Damage::NotABatch => {}
    }
    wire::batch_part(&head, data.into())
}

async fn serve_damaged(damage: Damage) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = ReplicationServer::new(Damaged(damage));
    let serving = tonic::transport::Server::builder()
        .add_service(service)
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(serving);
    address
}
