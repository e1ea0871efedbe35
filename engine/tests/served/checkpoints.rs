//! The write-ahead log stays bounded, whoever reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate_engine::{Error, Params, Value};

use crate::support::{Node, eventually, integer, ok, promptly, run};

const LOAD: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_log_is_bounded_while_readers_are_busy() {
    let node = Node::start();
    ok(
        &mut node.session(),
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v)",
    )
    .await;
    let done = Arc::new(AtomicBool::new(false));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let (mut session, done) = (node.session(), done.clone());
        clients.spawn(async move {
            while !done.load(Ordering::Relaxed) {
                ok(&mut session, "SELECT count(*), sum(length(v)) FROM t").await;
            }
        });
    }
    for _ in 0..8 {
        let (mut session, done) = (node.session(), done.clone());
        clients.spawn(async move {
            while !done.load(Ordering::Relaxed) {
                let params = Params::positional([Value::Blob(vec![7; 2_000])]);
                let sql = "INSERT INTO t(v) VALUES (?)";
                session.execute(sql, params, false).await.unwrap();
            }
        });
    }
    let started = Instant::now();
    let enough = || {
        let stats = node.engine.stats();
        started.elapsed() > LOAD && stats.checkpoints_complete >= 2
    };
    eventually("two checkpoints", enough).await;
    done.store(true, Ordering::Relaxed);
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    let stats = node.engine.stats();
    assert!(stats.wal_bytes_seen_max < 16 << 20, "{stats:?}");
    eventually("an idle node empties its log", || {
        node.engine.stats().wal_bytes == 0
    })
    .await;
}

#[tokio::test]
async fn an_open_read_transaction_delays_the_checkpoint_until_it_must_go() {
    let node = Node::start_with(|options| {
        options.wal_checkpoint_bytes = 1 << 20;
        options.wal_bytes_max = 3 << 20;
        options.checkpoint_drain_max = Duration::from_millis(20);
    });
    let mut writer = node.session();
    ok(&mut writer, "CREATE TABLE t(v)").await;
    let mut reader = node.session();
    ok(&mut reader, "BEGIN").await;
    assert_eq!(integer(&mut reader, "SELECT count(*) FROM t").await, 0);
    let blob = || Params::positional([Value::Blob(vec![7; 100_000])]);
    let insert = "INSERT INTO t VALUES (?)";
    while node.engine.stats().wal_bytes < 2 << 20 {
        writer.execute(insert, blob(), false).await.unwrap();
    }
    // Past the first bound it is left alone.
    assert_eq!(integer(&mut reader, "SELECT count(*) FROM t").await, 0);
    while node.engine.stats().wal_bytes_seen_max < 3 << 20 {
        writer.execute(insert, blob(), false).await.unwrap();
    }
    eventually("it is rolled back", || node.engine.stats().open_reads == 0).await;
    let gone = run(&mut reader, "SELECT count(*) FROM t").await;
    assert!(
        matches!(gone, Err(Error::TransactionTimeout(_))),
        "{gone:?}"
    );
    eventually("the log is emptied", || node.engine.stats().wal_bytes == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_read_gives_way_to_a_checkpoint_and_is_answered_all_the_same() {
    let node = Node::start_with(|options| {
        options.wal_checkpoint_bytes = 1 << 20;
        options.wal_bytes_max = 1 << 20;
        options.checkpoint_drain_max = Duration::from_millis(20);
    });
    let mut writer = node.session();
    ok(&mut writer, "CREATE TABLE t(v)").await;
    let mut reader = node.session();
    let long = "SELECT count(*) FROM generate_series(1, 20000000)";
    let read = tokio::spawn(async move { integer(&mut reader, long).await });
    eventually("the read is under way", || {
        node.engine.store().gate().inside() > 0
    })
    .await;
    let blob = Params::positional([Value::Blob(vec![7; 2_000_000])]);
    let insert = "INSERT INTO t VALUES (?)";
    writer.execute(insert, blob, false).await.unwrap();
    eventually("the log is emptied", || node.engine.stats().wal_bytes == 0).await;
    assert!(
        !read.is_finished(),
        "the read was too short to be in the way"
    );
    assert_eq!(read.await.unwrap(), 20_000_000);
}

#[tokio::test]
async fn a_transaction_that_has_not_read_keeps_no_checkpoint_waiting() {
    let node = Node::start();
    let mut writer = node.session();
    ok(&mut writer, "CREATE TABLE t(v)").await;
    let mut idle = node.session();
    ok(&mut idle, "BEGIN").await;
    ok(&mut idle, "SAVEPOINT s").await;
    idle.describe("SELECT * FROM t").await.unwrap();
    ok(&mut writer, "INSERT INTO t VALUES (1)").await;
    eventually("the log is emptied", || node.engine.stats().wal_bytes == 0).await;
    promptly("it goes on", ok(&mut idle, "INSERT INTO t VALUES (2)")).await;
    ok(&mut idle, "COMMIT").await;
    assert_eq!(integer(&mut idle, "SELECT count(*) FROM t").await, 2);
}
