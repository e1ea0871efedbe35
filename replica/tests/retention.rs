//! The log is kept for as long as a registered replica may need it, and no longer.

mod common;

use std::time::Duration;

use common::{Primary, Replica, Served, assert_equal, node_id, settings};
use tidegate_engine::slots::slots;
use tidegate_engine::{Engine, Seq, Slot, SlotState};
use tidegate_proto::PROTOCOL_VERSION;
use tidegate_proto::peer::v1 as pb;
use tidegate_replica::dial;
use tidegate_replica::retention::{Limits, TAIL_ROWS};
use tidegate_replica::slots::{Forgotten, forget};
use tidegate_replica::trimmer::Trimmer;

/// A primary with one table.
async fn primary(dir: &std::path::Path) -> Primary {
    let primary = Primary::start(&dir.join("n1")).await;
    primary.run(&["CREATE TABLE t (v)"]).await;
    primary
}

async fn write(primary: &Primary, rows: u64) {
    let insert = format!("INSERT INTO t SELECT value FROM generate_series(1, {rows})");
    primary.run(&[&insert]).await;
}

fn trimmer(primary: &Primary, limits: Limits) -> Trimmer {
    let engine = primary.current.subscribe();
    Trimmer::new(engine, primary.followers.clone(), limits)
}

async fn trim(trimmer: &mut Trimmer, engine: &Engine) -> Seq {
    trimmer.trim_all().await.expect("trimmed");
    *engine.floor().borrow()
}

async fn acknowledged(primary: &Primary) -> Seq {
    let head = primary.head();
    primary.until("all applied", |f| f.applied == head).await;
    head
}

fn stored(engine: &Engine) -> Vec<Slot> {
    slots(&mut engine.store().reader().unwrap()).unwrap()
}

fn tail_of(head: Seq) -> Seq {
    Seq::new(head.get() - TAIL_ROWS)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registered_replica_holds_the_log_connected_away_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let before = primary(dir.path()).await;
    let mut trims = trimmer(&before, Limits::default());
    let replica = Replica::start(&dir.path().join("n2"), &before.url());
    replica.until_level(&before).await;
    write(&before, 30_000).await;
    let held = acknowledged(&before).await;
    assert_eq!(trim(&mut trims, &before.engine).await, tail_of(held));

    replica.stop().await;
    write(&before, 50_000).await;
    assert_eq!(trim(&mut trims, &before.engine).await, held, "it is away");

    // Only the database tells the next process of it.
    let address = before.address.to_string();
    drop(trims);
    before.stop().await;
    let primary = Primary::start_at(&dir.path().join("n1"), &address).await;
    let mut trims = trimmer(&primary, Limits::default());
    write(&primary, 50_000).await;
    assert_eq!(trim(&mut trims, &primary.engine).await, held, "a restart");
    let known = primary.followers.slot(&node_id("n2")).expect("a slot");
    assert_eq!((known.from, known.state), (held, SlotState::Active));

    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    let state = replica.until_level(&primary).await;
    assert_eq!(state.snapshots, 0, "it was fed from the log");
    let head = acknowledged(&primary).await;
    assert_eq!(trim(&mut trims, &primary.engine).await, tail_of(head));
    assert_equal(&primary, &replica);
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_was_let_in_a_moment_ago_is_registered_durably() {
    let dir = tempfile::tempdir().unwrap();
    let primary = primary(dir.path()).await;
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    replica.until("a stream", |s| s.is_attached()).await;
    let slots = stored(&primary.engine);
    assert_eq!(slots.len(), 1);
    assert_eq!((slots[0].node.as_str(), slots[0].from), ("n2", Seq::ZERO));
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_a_snapshot_can_be_fed_from_its_position() {
    let dir = tempfile::tempdir().unwrap();
    let before = primary(dir.path()).await;
    write(&before, 40_000).await;
    let mut trims = trimmer(&before, Limits::default());
    let floor = trim(&mut trims, &before.engine).await;
    assert_eq!(floor, tail_of(before.head()), "nobody follows");
    let mut client = dial::dial(&before.url(), &settings()).await.unwrap();
    let request = dial::request(pb::SnapshotRequest {
        protocol_version: PROTOCOL_VERSION,
        cluster_id: String::new(),
        node_id: "n2".into(),
    });
    let mut chunks = client.snapshot(request).await.unwrap().into_inner();
    let first = chunks.message().await.unwrap().and_then(|chunk| chunk.kind);
    let Some(pb::snapshot_chunk::Kind::Begin(begin)) = first else {
        panic!("{first:?}");
    };
    // While it is under way, when it has ended one way or the other, and after a restart.
    write(&before, 40_000).await;
    let in_flight = trim(&mut trims, &before.engine).await;
    drop((chunks, client));
    write(&before, 40_000).await;
    let ended = trim(&mut trims, &before.engine).await;
    drop(trims);
    let address = before.address.to_string();
    before.stop().await;
    let primary = Primary::start_at(&dir.path().join("n1"), &address).await;
    let mut trims = trimmer(&primary, Limits::default());
    let restarted = trim(&mut trims, &primary.engine).await;
    for floor in [in_flight, ended, restarted] {
        assert!(floor.get() <= begin.seq, "{floor} is past {}", begin.seq);
    }
    assert!(in_flight > floor, "up to the snapshot the log goes");
    // And so it is with a real one.
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    assert_eq!(replica.until_level(&primary).await.snapshots, 1);
    assert_equal(&primary, &replica);
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_past_the_limit_is_marked_and_comes_back_by_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let primary = primary(dir.path()).await;
    let limits = Limits {
        keep_rows: 2_000,
        ..Limits::default()
    };
    let mut trims = trimmer(&primary, limits);
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    replica.until_level(&primary).await;
    acknowledged(&primary).await;
    replica.stop().await;
    write(&primary, 5_000).await;
    let floor = trim(&mut trims, &primary.engine).await;
    assert_eq!(floor.get(), primary.head().get() - 2_000);
    assert_eq!(stored(&primary.engine)[0].state, SlotState::NeedsSnapshot);
    let known = primary.until("marked", |f| f.slot.is_some()).await;
    assert_eq!(known.slot.unwrap().state, SlotState::NeedsSnapshot);

    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    assert_eq!(replica.until_level(&primary).await.snapshots, 1);
    let slots = stored(&primary.engine);
    assert_eq!(slots[0].state, SlotState::Active);
    assert!(slots[0].from >= floor);
    assert_equal(&primary, &replica);
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absence_that_is_too_long_is_given_up_when_something_is_lacking() {
    let dir = tempfile::tempdir().unwrap();
    let primary = primary(dir.path()).await;
    let limits = Limits {
        keep_age: Duration::ZERO,
        ..Limits::default()
    };
    let mut trims = trimmer(&primary, limits);
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    replica.until_level(&primary).await;
    acknowledged(&primary).await;
    replica.stop().await;
    primary.until("away", |f| !f.connected).await;
    trim(&mut trims, &primary.engine).await;
    assert_eq!(stored(&primary.engine)[0].state, SlotState::Active);
    write(&primary, 10).await;
    trim(&mut trims, &primary.engine).await;
    assert_eq!(stored(&primary.engine)[0].state, SlotState::NeedsSnapshot);
    // It comes back while the tail still has what it lacks.
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    assert_eq!(replica.until_level(&primary).await.snapshots, 0);
    assert_eq!(stored(&primary.engine)[0].state, SlotState::Active);
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_trims_as_its_source_does_but_not_past_its_own_followers() {
    let dir = tempfile::tempdir().unwrap();
    let primary = primary(dir.path()).await;
    let mut trims = trimmer(&primary, Limits::default());
    let second = Replica::start(&dir.path().join("n2"), &primary.url());
    second.until_level(&primary).await;
    let relay = Served::of_replica(&second, "n2").await;
    let third = Replica::start_as(&dir.path().join("n3"), &relay.url(), "n3", settings());
    third.until_level(&primary).await;
    let mut relays_trims = Trimmer::new(
        second.mount.current(),
        relay.followers.clone(),
        Limits::default(),
    );
    let relays = second.engine();

    write(&primary, 30_000).await;
    let head = acknowledged(&primary).await;
    third.until("level", |s| s.applied >= head).await;
    let mut known = relay.followers.status();
    let level = known.wait_for(|all| all[&node_id("n3")].applied >= head);
    level.await.expect("the register lives");
    let floor = trim(&mut trims, &primary.engine).await;
    told(&relays, floor).await;
    assert_eq!(trim(&mut relays_trims, &relays).await, floor);

    third.stop().await;
    write(&primary, 30_000).await;
    acknowledged(&primary).await;
    let floor = trim(&mut trims, &primary.engine).await;
    told(&relays, floor).await;
    assert!(floor > head);
    assert_eq!(trim(&mut relays_trims, &relays).await, head, "n3 is away");
    let third = Replica::start_as(&dir.path().join("n3"), &relay.url(), "n3", settings());
    assert_eq!(third.until_level(&primary).await.snapshots, 0);
    assert_equal(&primary, &third);
    third.stop().await;
    drop((relays, relays_trims));
    relay.stop().await;
    second.stop().await;
    primary.stop().await;
}

/// Waits until a replica was told this floor.
async fn told(engine: &Engine, floor: Seq) {
    let told = async {
        while engine.source_floor() < floor {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let in_time = tokio::time::timeout(common::PATIENCE, told).await;
    in_time.expect("a heartbeat with the floor");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_forgotten_holds_nothing_and_may_come_back_by_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let primary = primary(dir.path()).await;
    let mut trims = trimmer(&primary, Limits::default());
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    replica.until_level(&primary).await;
    assert_eq!(forgotten(&primary, "n2").await, Forgotten::IsConnected);
    replica.stop().await;
    primary.until("away", |f| !f.connected).await;
    write(&primary, 40_000).await;
    assert!(trim(&mut trims, &primary.engine).await < tail_of(primary.head()));
    assert_eq!(forgotten(&primary, "n2").await, Forgotten::Yes);
    assert_eq!(forgotten(&primary, "n2").await, Forgotten::Unknown);
    assert_eq!(stored(&primary.engine), []);
    let floor = trim(&mut trims, &primary.engine).await;
    assert_eq!(floor, tail_of(primary.head()));
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    assert_eq!(replica.until_level(&primary).await.snapshots, 1);
    assert_equal(&primary, &replica);
    replica.stop().await;
    primary.stop().await;
}

async fn forgotten(primary: &Primary, node: &str) -> Forgotten {
    let (engine, followers) = (primary.engine.clone(), primary.followers.clone());
    let node = node_id(node);
    let done = tokio::task::spawn_blocking(move || forget(&engine, &followers, &node));
    done.await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_stays_short_by_itself_while_somebody_writes() {
    let dir = tempfile::tempdir().unwrap();
    let primary = primary(dir.path()).await;
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    replica.until_level(&primary).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let task = tokio::spawn(trimmer(&primary, Limits::default()).run(stop.clone()));
    for _ in 0..40 {
        write(&primary, 5_000).await;
    }
    let head = acknowledged(&primary).await;
    let mut floor = primary.engine.floor();
    let reached = floor.wait_for(|floor| *floor >= Seq::new(head.get() - 2 * TAIL_ROWS));
    let in_time = tokio::time::timeout(common::PATIENCE, reached).await;
    in_time.expect("trimmed in time").expect("the engine lives");
    assert_equal(&primary, &replica);
    replica.stop().await;
    stop.cancel();
    task.await.unwrap();
    drop(floor);
    primary.stop().await;
}
