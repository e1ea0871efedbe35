//! Interactive transactions: the permit, the limits, and how they end.

use std::time::Duration;

use tidegate_engine::Error;

use crate::support::{Node, code, eventually, integer, ok, promptly, run};

#[tokio::test]
async fn an_idle_holder_of_the_permit_is_rolled_back_and_told_so() {
    let node = Node::start_with(|options| {
        options.transaction_permit_idle_max = Duration::from_millis(50);
    });
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    ok(&mut session, "BEGIN IMMEDIATE").await;
    ok(&mut session, "INSERT INTO t VALUES (1)").await;
    let mut other = node.session();
    promptly(
        "another client writes",
        ok(&mut other, "INSERT INTO t VALUES (2)"),
    )
    .await;
    let late = run(&mut session, "COMMIT").await;
    assert!(
        matches!(late, Err(Error::TransactionTimeout(_))),
        "{late:?}"
    );
    assert_eq!(code(&late), "TIDEGATE_TXN_TIMEOUT");
    assert!(session.is_autocommit());
    let rows = ok(&mut session, "SELECT a FROM t").await.rows;
    assert_eq!(rows, vec![vec![2.into()]]);
    assert_eq!(node.engine.stats().transactions_ended["permit_idle"], 1);
}

#[tokio::test]
async fn a_transaction_that_is_open_too_long_is_rolled_back_even_when_busy() {
    let node = Node::start_with(|options| {
        options.transaction_time_max = Duration::from_millis(150);
    });
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    ok(&mut session, "BEGIN").await;
    let error = loop {
        match run(&mut session, "INSERT INTO t VALUES (1)").await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::TransactionTimeout(_)), "{error}");
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 0);
}

#[tokio::test]
async fn a_client_that_vanishes_gives_the_permit_back() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    ok(&mut session, "BEGIN IMMEDIATE").await;
    ok(&mut session, "INSERT INTO t VALUES (1)").await;
    drop(session);
    let mut other = node.session();
    promptly(
        "the permit comes back",
        ok(&mut other, "INSERT INTO t VALUES (2)"),
    )
    .await;
    assert_eq!(integer(&mut other, "SELECT count(*) FROM t").await, 1);
    eventually("nothing is open", || {
        node.engine.stats().open_transactions == 0
    })
    .await;
}

#[tokio::test]
async fn a_plain_begin_that_has_read_nothing_writes_on_the_newest_state() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    ok(&mut session, "BEGIN").await;
    ok(&mut session, "SAVEPOINT s").await;
    ok(&mut node.session(), "INSERT INTO t VALUES (1)").await;
    ok(&mut session, "INSERT INTO t VALUES (2)").await;
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 2);
    ok(&mut session, "ROLLBACK TO s").await;
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 1);
    ok(&mut session, "COMMIT").await;
}

#[tokio::test]
async fn a_read_snapshot_that_others_passed_cannot_write_and_says_so() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    ok(&mut session, "BEGIN").await;
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 0);
    let mut other = node.session();
    ok(&mut other, "INSERT INTO t VALUES (1)").await;
    let stale = run(&mut session, "INSERT INTO t VALUES (2)").await;
    assert!(matches!(stale, Err(Error::StaleSnapshot)), "{stale:?}");
    assert!(stale.unwrap_err().is_retryable());
    // It may go on reading its snapshot, and holds nobody up.
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 0);
    promptly("others write", ok(&mut other, "INSERT INTO t VALUES (3)")).await;
    ok(&mut session, "ROLLBACK").await;
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 2);
}

#[tokio::test]
async fn a_read_snapshot_that_is_still_the_newest_may_write() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    ok(&mut session, "BEGIN").await;
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 0);
    ok(&mut session, "INSERT INTO t VALUES (2)").await;
    ok(&mut session, "COMMIT").await;
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 1);
}

#[tokio::test]
async fn an_error_that_ends_the_transaction_is_told_as_such_even_from_a_read() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    ok(&mut session, "BEGIN").await;
    ok(&mut session, "INSERT INTO t VALUES (1)").await;
    let gone = run(&mut session, "SELECT json('{bad')").await;
    assert!(
        matches!(gone, Err(Error::TransactionGone { .. })),
        "{gone:?}"
    );
    assert!(session.is_autocommit());
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 0);
}

#[tokio::test]
async fn a_failed_statement_leaves_the_transaction_open() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a UNIQUE)").await;
    ok(&mut session, "BEGIN").await;
    ok(&mut session, "INSERT INTO t VALUES (1)").await;
    let twice = run(&mut session, "INSERT INTO t VALUES (2), (1)").await;
    assert!(code(&twice).starts_with("SQLITE_CONSTRAINT"), "{twice:?}");
    let twice = run(&mut session, "INSERT INTO t VALUES (3), (1) RETURNING a").await;
    assert!(code(&twice).starts_with("SQLITE_CONSTRAINT"), "{twice:?}");
    ok(&mut session, "INSERT INTO t VALUES (4)").await;
    ok(&mut session, "COMMIT").await;
    assert_eq!(integer(&mut session, "SELECT sum(a) FROM t").await, 5);
}

#[tokio::test]
async fn a_deferred_foreign_key_refuses_commit_and_can_be_mended() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE p(id INTEGER PRIMARY KEY)").await;
    let child = "CREATE TABLE c(p REFERENCES p(id) DEFERRABLE INITIALLY DEFERRED)";
    ok(&mut session, child).await;
    ok(&mut session, "BEGIN").await;
    ok(&mut session, "INSERT INTO c VALUES (1)").await;
    let refused = run(&mut session, "COMMIT").await;
    assert_eq!(code(&refused), "SQLITE_CONSTRAINT_FOREIGNKEY");
    assert!(!session.is_autocommit());
    ok(&mut session, "INSERT INTO p VALUES (1)").await;
    ok(&mut session, "COMMIT").await;
    assert_eq!(integer(&mut session, "SELECT count(*) FROM c").await, 1);
}

#[tokio::test]
async fn a_savepoint_outside_a_transaction_opens_one_and_its_release_commits() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    ok(&mut session, "SAVEPOINT outer").await;
    assert!(!session.is_autocommit());
    ok(&mut session, "INSERT INTO t VALUES (1)").await;
    ok(&mut session, "SAVEPOINT inner").await;
    ok(&mut session, "INSERT INTO t VALUES (2)").await;
    ok(&mut session, "ROLLBACK TO inner").await;
    ok(&mut session, "RELEASE inner").await;
    assert_eq!(
        integer(&mut node.session(), "SELECT count(*) FROM t").await,
        0
    );
    let released = ok(&mut session, "RELEASE outer").await;
    assert!(session.is_autocommit());
    assert_eq!(released.position, Some(node.engine.head().borrow().seq));
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 1);
    let unknown = run(&mut session, "RELEASE outer").await;
    assert_eq!(code(&unknown), "SQLITE_ERROR");
}

#[tokio::test]
async fn a_readonly_transaction_reads_one_snapshot_and_refuses_writes() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    ok(&mut session, "BEGIN TRANSACTION READONLY").await;
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 0);
    let refused = run(&mut session, "INSERT INTO t VALUES (1)").await;
    assert_eq!(code(&refused), "SQLITE_READONLY");
    ok(&mut node.session(), "INSERT INTO t VALUES (2)").await;
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 0);
    ok(&mut session, "COMMIT").await;
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 1);
}

#[tokio::test]
async fn a_schema_change_is_the_transactions_own_until_it_commits() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "BEGIN").await;
    ok(&mut session, "CREATE TABLE t(a)").await;
    ok(&mut session, "INSERT INTO t VALUES (1)").await;
    assert!(run(&mut node.session(), "SELECT * FROM t").await.is_err());
    ok(&mut session, "ALTER TABLE t ADD COLUMN b DEFAULT 7").await;
    assert_eq!(integer(&mut session, "SELECT b FROM t").await, 7);
    ok(&mut session, "COMMIT").await;
    assert_eq!(integer(&mut node.session(), "SELECT b FROM t").await, 7);
    ok(&mut session, "BEGIN").await;
    ok(&mut session, "DROP TABLE t").await;
    ok(&mut session, "ROLLBACK").await;
    assert_eq!(integer(&mut session, "SELECT a FROM t").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_transactions_and_writes_at_once_never_see_busy() {
    let node = Node::start();
    ok(
        &mut node.session(),
        "CREATE TABLE t(id INTEGER PRIMARY KEY, n)",
    )
    .await;
    ok(&mut node.session(), "INSERT INTO t VALUES (1, 0)").await;
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..12 {
        let mut session = node.session();
        clients.spawn(async move {
            for _ in 0..20 {
                if client % 3 == 0 {
                    ok(&mut session, "UPDATE t SET n = n + 1 WHERE id = 1").await;
                    continue;
                }
                let begin = ["BEGIN", "BEGIN IMMEDIATE"][client % 2];
                ok(&mut session, begin).await;
                ok(&mut session, "UPDATE t SET n = n + 1 WHERE id = 1").await;
                ok(&mut session, "COMMIT").await;
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    assert_eq!(integer(&mut node.session(), "SELECT n FROM t").await, 240);
}

#[tokio::test]
async fn too_many_open_transactions_are_refused_at_once() {
    let node = Node::start_with(|options| options.transactions_max = 2);
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut session = node.session();
        ok(&mut session, "BEGIN").await;
        open.push(session);
    }
    let mut third = node.session();
    let refused = promptly("a refusal", run(&mut third, "BEGIN")).await;
    assert_eq!(code(&refused), "TIDEGATE_OVERLOADED");
    assert!(third.is_autocommit());
    drop(open);
    eventually("there is room again", || {
        node.engine.stats().open_transactions == 0
    })
    .await;
    ok(&mut third, "BEGIN").await;
}
