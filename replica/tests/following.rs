//! A replica follows its primary.

mod common;

use common::{PATIENCE, Primary, Replica, assert_equal};
use tidegate_engine::Seq;
use tidegate_replica::proof::Verdict;
use tidegate_replica::state::FollowerState;

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_replica_catches_up_and_follows() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Primary::start(&dir.path().join("n1")).await;
    primary
        .run(&[
            "CREATE TABLE t (id INTEGER PRIMARY KEY, v)",
            "INSERT INTO t VALUES (1, 'before'), (2, x'00ff'), (3, -0.0)",
            "CREATE TRIGGER tr AFTER INSERT ON t BEGIN UPDATE t SET v = 'seen' WHERE id = new.id; END",
        ])
        .await;
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    replica.until_level(&primary).await;
    assert_equal(&primary, &replica);

    primary
        .run(&[
            "INSERT INTO t VALUES (4, 'live')",
            "ALTER TABLE t RENAME TO u",
            "UPDATE u SET v = 'changed' WHERE id = 1",
            "DELETE FROM u WHERE id = 2",
        ])
        .await;
    replica.until_level(&primary).await;
    assert_equal(&primary, &replica);
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_primary_knows_how_far_the_replica_is() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Primary::start(&dir.path().join("n1")).await;
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    primary
        .run(&["CREATE TABLE t (v)", "INSERT INTO t VALUES (1)"])
        .await;
    let head = primary.head();
    let status = primary.until("acknowledged", |f| f.applied == head).await;
    assert!(status.connected);
    assert_eq!((status.sent, status.received), (head, head));
    replica.stop().await;
    primary.until("gone", |f| !f.connected).await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_pair_connects_once_and_is_proven() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Primary::start(&dir.path().join("n1")).await;
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    replica.until("proven", |s| s.proof.equal.is_some()).await;
    // Longer than any heartbeat or silence limit of a broken implementation.
    let heard = replica.state().heard.expect("heard");
    let later = replica
        .until("twenty heartbeats", |s| {
            s.heard
                .is_some_and(|now| now.duration_since(heard).as_millis() > 2_000)
        })
        .await;
    assert_eq!((later.connects, later.failures), (1, 0));
    let status = primary.until("proven", |f| f.report.is_some()).await;
    assert_eq!(status.report.unwrap().verdict, Verdict::Equal);
    assert_eq!(status.connects, 1);
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_where_its_source_is_said_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Primary::start(&dir.path().join("n1")).await;
    primary.run(&["CREATE TABLE t (v)"]).await;
    let source = tokio::sync::watch::Sender::new(None);
    let replica = Replica::start_at(
        &dir.path().join("n2"),
        source.subscribe(),
        "n2",
        common::settings(),
    );
    let state = replica.until("waiting", |s| s.failures == 0 && !s.detail.is_empty());
    assert!(state.await.detail.contains("no primary is known"));
    source.send_replace(Some(primary.url()));
    replica.until_level(&primary).await;

    // The same data at another address: the stream ends and the new one begins.
    let relay = Replica::start_as(
        &dir.path().join("n3"),
        &primary.url(),
        "n3",
        common::settings(),
    );
    relay.until_level(&primary).await;
    let served = common::Served::of_replica(&relay, "n3").await;
    source.send_replace(Some(served.url()));
    let moved = |s: &FollowerState| s.source.as_ref().is_some_and(|n| n.as_str() == "n3");
    replica.until("moved", moved).await;
    source.send_replace(Some(primary.url()));
    replica
        .until("moved back", |s| s.is_attached() && !moved(s))
        .await;
    primary.run(&["INSERT INTO t VALUES (1)"]).await;
    replica.until_level(&primary).await;
    assert_equal(&primary, &replica);
    served.stop().await;
    relay.stop().await;
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_returns_when_its_primary_was_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Primary::start(&dir.path().join("n1")).await;
    let address = primary.address.to_string();
    primary.run(&["CREATE TABLE t (v)"]).await;
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    replica.until("proven", |s| s.proof.equal.is_some()).await;
    primary.stop().await;
    replica.until("noticed", |s| !s.is_attached()).await;

    let primary = Primary::start_at(&dir.path().join("n1"), &address).await;
    primary.run(&["INSERT INTO t VALUES ('after')"]).await;
    let state = replica.until_level(&primary).await;
    assert_eq!(state.connects, 2);
    // The new opening is on the same history, and a primary needs no proof of its own.
    assert!(state.proof.equal.is_some());
    assert_equal(&primary, &replica);
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_on_where_it_was_when_it_was_restarted_itself() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Primary::start(&dir.path().join("n1")).await;
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    primary
        .run(&["CREATE TABLE t (v)", "INSERT INTO t VALUES (1)"])
        .await;
    replica.until_level(&primary).await;
    replica.stop().await;
    primary
        .run(&[
            "INSERT INTO t VALUES (2)",
            "DROP TABLE t",
            "CREATE TABLE t (w)",
        ])
        .await;
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    let state = replica.until_level(&primary).await;
    assert_eq!(state.snapshots, 0);
    assert_equal(&primary, &replica);
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_much_larger_than_a_message_arrives_whole() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Primary::start(&dir.path().join("n1")).await;
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    primary
        .run(&[
            "CREATE TABLE t (id INTEGER PRIMARY KEY, v)",
            "INSERT INTO t VALUES (1, zeroblob(6000000))",
            "WITH RECURSIVE n(i) AS (VALUES (2) UNION ALL SELECT i + 1 FROM n WHERE i < 30000) \
             INSERT INTO t SELECT i, hex(i * 7919) || '-and-some-more-text-to-fill-the-row' FROM n",
        ])
        .await;
    let state = replica.until_level(&primary).await;
    assert!(state.rows_applied >= 30_000, "{}", state.rows_applied);
    assert_equal(&primary, &replica);
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_commits_arrive_in_order_and_lag_returns_to_zero() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Primary::start(&dir.path().join("n1")).await;
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    primary
        .run(&["CREATE TABLE t (id INTEGER PRIMARY KEY, v)"])
        .await;
    for round in 0..200 {
        let insert = format!("INSERT INTO t (v) VALUES ({round})");
        let update = format!("UPDATE t SET v = v + 1 WHERE id = {}", round / 2);
        primary.run(&[insert.as_str(), update.as_str()]).await;
    }
    let state = replica.until_level(&primary).await;
    assert_eq!(state.changes_behind(), 0);
    let lag = state.lag(std::time::Instant::now(), PATIENCE);
    assert!(lag.is_some_and(|lag| lag.is_zero()), "{lag:?}");
    assert!(state.applied > Seq::ZERO);
    assert_equal(&primary, &replica);
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_returns_is_shown_as_behind_since_it_left() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Primary::start(&dir.path().join("n1")).await;
    primary.run(&["CREATE TABLE t (v)"]).await;
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    let head = primary.head();
    primary.until("level", |f| f.applied == head).await;
    replica.stop().await;
    let left = primary.until("gone", |f| !f.connected).await;
    primary
        .run(&["INSERT INTO t VALUES (zeroblob(3000000))"])
        .await;
    let away = std::time::Duration::from_millis(300);
    while left.lag_taken.elapsed() < away {
        primary.run(&["UPDATE t SET v = zeroblob(3000000)"]).await;
    }
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    let back = primary
        .until("back", |f| f.connects == 2 && f.sent > f.applied)
        .await;
    assert!(back.lag_ms >= 300, "{back:?}");
    let head = primary.head();
    primary
        .until("level again", |f| f.applied == head && f.lag_ms == 0)
        .await;
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_feeds_another() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Primary::start(&dir.path().join("n1")).await;
    primary
        .run(&[
            "CREATE TABLE t (id INTEGER PRIMARY KEY, v)",
            "INSERT INTO t VALUES (1, 2)",
        ])
        .await;
    let middle = Replica::start(&dir.path().join("n2"), &primary.url());
    middle.until_level(&primary).await;
    let relay = common::Served::of_replica(&middle, "n2").await;
    let last = Replica::start_as(
        &dir.path().join("n3"),
        &relay.url(),
        "n3",
        common::settings(),
    );
    last.until_level(&primary).await;
    primary
        .run(&["ALTER TABLE t RENAME TO u", "INSERT INTO u VALUES (3, 4)"])
        .await;
    last.until_level(&primary).await;
    assert_equal(&primary, &last);
    last.until("proven", |s| s.proof.equal.is_some()).await;
    last.stop().await;
    relay.stop().await;
    middle.stop().await;
    primary.stop().await;
}
