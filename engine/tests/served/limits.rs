//! Every bound is answered promptly, with its reason, and harms nobody else.

use std::time::Duration;

use tidegate_engine::{Error, Params, Value};

use crate::support::{Node, code, eventually, integer, ok, promptly, run};

const ENDLESS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

#[tokio::test]
async fn an_endless_read_is_stopped_at_its_time_limit() {
    let node = Node::start_with(|options| {
        options.statement_time_max = Duration::from_millis(100);
    });
    let mut session = node.session();
    let stopped = promptly("the limit", run(&mut session, ENDLESS)).await;
    assert_eq!(code(&stopped), "SQLITE_INTERRUPT");
    assert!(stopped.unwrap_err().to_string().contains("time limit"));
    assert_eq!(integer(&mut session, "SELECT 1").await, 1);
}

#[tokio::test]
async fn an_endless_write_is_stopped_and_its_neighbours_are_not() {
    let node = Node::start_with(|options| {
        options.write_time_max = Duration::from_millis(100);
    });
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    let endless = format!("INSERT INTO t {ENDLESS}");
    let good = "INSERT INTO t VALUES (1)";
    let outcomes = node.run_together(&[good, &endless, good]).await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    assert_eq!(code(&outcomes[1]), "SQLITE_INTERRUPT");
    assert_eq!(integer(&mut session, "SELECT sum(a) FROM t").await, 2);
}

#[tokio::test]
async fn a_result_that_is_too_large_is_an_error_and_its_write_is_undone() {
    let node = Node::start_with(|options| options.result_bytes_max = 10_000);
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    let series = "SELECT randomblob(1000) FROM generate_series(1, 100)";
    let refused = run(&mut session, series).await;
    assert_eq!(code(&refused), "TIDEGATE_TOO_LARGE");
    let returning = format!("INSERT INTO t {series} RETURNING a");
    let refused = run(&mut session, &returning).await;
    assert_eq!(code(&refused), "TIDEGATE_TOO_LARGE");
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 0);
    ok(&mut session, "BEGIN").await;
    let refused = run(&mut session, &returning).await;
    assert_eq!(code(&refused), "TIDEGATE_TOO_LARGE");
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 0);
    ok(&mut session, "COMMIT").await;
    // Rows that nobody wants cost nothing.
    let wrote = session
        .execute(series, Params::default(), false)
        .await
        .unwrap();
    assert_eq!((wrote.rows_read, wrote.rows.len()), (100, 0));
}

#[tokio::test]
async fn a_full_write_queue_refuses_at_once_and_keeps_its_promises() {
    let node = Node::start_with(|options| options.write_queue_max = 3);
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    ok(&mut session, "BEGIN IMMEDIATE").await;
    let mut waiting = Vec::new();
    for n in 0..3_i64 {
        let mut client = node.session();
        waiting.push(tokio::spawn(async move {
            let params = Params::positional([Value::from(n)]);
            client
                .execute("INSERT INTO t VALUES (?)", params, false)
                .await
        }));
    }
    eventually("the queue is full", || {
        node.engine.stats().write_queue_depth == 3
    })
    .await;
    let refused = promptly("a refusal", run(&mut node.session(), "DELETE FROM t")).await;
    assert_eq!(code(&refused), "TIDEGATE_OVERLOADED");
    assert!(refused.unwrap_err().is_retryable());
    ok(&mut session, "COMMIT").await;
    for client in waiting {
        client.await.unwrap().unwrap();
    }
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 3);
    assert_eq!(node.engine.stats().admission_rejected["write_queue"], 1);
}

#[tokio::test]
async fn a_write_that_waits_too_long_is_told_so_and_not_executed() {
    let node = Node::start_with(|options| {
        options.permit_wait_max = Duration::from_millis(50);
    });
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    ok(&mut session, "BEGIN IMMEDIATE").await;
    let mut other = node.session();
    let late = promptly("an answer", run(&mut other, "INSERT INTO t VALUES (1)")).await;
    assert_eq!(code(&late), "TIDEGATE_OVERLOADED");
    let late = promptly("an answer", run(&mut other, "BEGIN IMMEDIATE")).await;
    assert_eq!(code(&late), "TIDEGATE_OVERLOADED");
    ok(&mut session, "COMMIT").await;
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 0);
}

#[tokio::test]
async fn a_full_read_queue_refuses_at_once() {
    let node = Node::start_with(|options| {
        options.readers = 1;
        options.read_queue_max = 1;
    });
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = node.session();
        clients.push(tokio::spawn(async move { run(&mut client, ENDLESS).await }));
        let busy = || node.engine.stats().open_reads == 1;
        eventually("the reader is busy", busy).await;
    }
    eventually("one read waits", || {
        node.engine.stats().read_queue_depth == 1
    })
    .await;
    let refused = promptly("a refusal", run(&mut node.session(), "SELECT 1")).await;
    assert_eq!(code(&refused), "TIDEGATE_OVERLOADED");
    for client in &clients {
        client.abort();
    }
    eventually("the reads are stopped", || {
        node.engine.stats().open_reads == 0
    })
    .await;
    ok(&mut node.session(), "SELECT 1").await;
}

#[tokio::test]
async fn a_read_whose_client_is_gone_is_stopped() {
    let node = Node::start();
    let mut session = node.session();
    let read = tokio::spawn(async move { run(&mut session, ENDLESS).await });
    eventually("it runs", || node.engine.stats().open_reads == 1).await;
    read.abort();
    eventually("it is stopped", || node.engine.stats().open_reads == 0).await;
}

#[tokio::test]
async fn a_transaction_whose_client_is_gone_in_mid_statement_is_rolled_back() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    let busy = tokio::spawn(async move {
        ok(&mut session, "BEGIN IMMEDIATE").await;
        run(&mut session, &format!("INSERT INTO t {ENDLESS}")).await
    });
    eventually("it is open", || node.engine.stats().open_transactions == 1).await;
    busy.abort();
    let mut other = node.session();
    promptly(
        "the permit is back",
        ok(&mut other, "INSERT INTO t VALUES (1)"),
    )
    .await;
    assert_eq!(integer(&mut other, "SELECT count(*) FROM t").await, 1);
}

#[tokio::test]
async fn what_is_refused_is_counted_by_its_reason() {
    let node = Node::start();
    let mut session = node.session();
    let refused = run(&mut session, "ATTACH 'x' AS y").await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert_eq!(
        node.engine.stats().statements_refused.values().sum::<u64>(),
        1
    );
}

#[tokio::test]
async fn shutting_down_stops_everything_and_answers_everybody() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    ok(&mut session, "BEGIN IMMEDIATE").await;
    ok(&mut session, "INSERT INTO t VALUES (1)").await;
    let mut reader = node.session();
    let read = tokio::spawn(async move { run(&mut reader, ENDLESS).await });
    eventually("a read runs", || node.engine.stats().open_reads == 1).await;
    let engine = node.engine.clone();
    let down = tokio::task::spawn_blocking(move || engine.shutdown());
    promptly("the shutdown", down).await.unwrap();
    assert!(matches!(read.await.unwrap(), Err(Error::Closed)));
    assert!(run(&mut session, "COMMIT").await.is_err());
    assert!(matches!(
        run(&mut node.session(), "INSERT INTO t VALUES (2)").await,
        Err(Error::Closed)
    ));
    assert_eq!(node.engine.stats().wal_bytes, 0);
}
