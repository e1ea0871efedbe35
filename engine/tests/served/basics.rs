//! One client, and many: what is acknowledged is there.

use tidegate_engine::{Engine, Error, Options, Params, Value};

use crate::support::{Node, eventually, integer, ok, run};

#[tokio::test]
async fn a_write_is_read_back_at_its_position() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)").await;
    let wrote = session
        .execute(
            "INSERT INTO t(v) VALUES (?)",
            Params::positional([Value::from("x")]),
            true,
        )
        .await
        .unwrap();
    assert_eq!((wrote.changes, wrote.last_insert_rowid), (1, Some(1)));
    let read = ok(&mut session, "SELECT id, v FROM t").await;
    assert_eq!(read.rows, vec![vec![Value::from(1), Value::from("x")]]);
    assert_eq!(read.columns[1].name, "v");
    assert_eq!(read.position, wrote.position);
    assert_eq!(node.engine.head().borrow().seq, wrote.position.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_clients_insert_and_every_acknowledged_row_is_there() {
    let node = Node::start();
    ok(
        &mut node.session(),
        "CREATE TABLE t(id INTEGER PRIMARY KEY, c, n)",
    )
    .await;
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..16_i64 {
        let mut session = node.session();
        clients.spawn(async move {
            for n in 0..100_i64 {
                let params = Params::positional([client.into(), n.into()]);
                let sql = "INSERT INTO t(c, n) VALUES (?, ?)";
                session.execute(sql, params, false).await.unwrap();
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    let mut session = node.session();
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 1_600);
    let distinct = "SELECT count(*) FROM (SELECT DISTINCT c, n FROM t)";
    assert_eq!(integer(&mut session, distinct).await, 1_600);
    let stats = node.engine.stats();
    assert_eq!(stats.uncaptured_writes, 0);
    assert!(
        stats.group_commit_size.count() < 1_600,
        "commits were shared"
    );
}

#[tokio::test]
async fn an_interactive_transaction_commits_and_another_rolls_back() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)").await;
    ok(&mut session, "BEGIN").await;
    assert!(!session.is_autocommit());
    ok(&mut session, "INSERT INTO t VALUES (1, 'a')").await;
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 1);
    assert_eq!(
        integer(&mut node.session(), "SELECT count(*) FROM t").await,
        0
    );
    ok(&mut session, "COMMIT").await;
    assert!(session.is_autocommit());
    assert_eq!(
        integer(&mut node.session(), "SELECT count(*) FROM t").await,
        1
    );
    ok(&mut session, "BEGIN IMMEDIATE").await;
    ok(&mut session, "INSERT INTO t VALUES (2, 'b')").await;
    ok(&mut session, "ROLLBACK").await;
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 1);
}

#[tokio::test]
async fn a_failing_statement_fails_alone() {
    let node = Node::start();
    let mut session = node.session();
    ok(
        &mut session,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v UNIQUE)",
    )
    .await;
    ok(&mut session, "INSERT INTO t VALUES (1, 'a')").await;
    let error = run(&mut session, "INSERT INTO t VALUES (2, 'a')")
        .await
        .unwrap_err();
    assert_eq!(error.code(), "SQLITE_CONSTRAINT_UNIQUE");
    assert!(matches!(
        run(&mut session, "INSERT INTO nowhere VALUES (1)").await,
        Err(Error::Sql { .. })
    ));
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 1);
}

#[tokio::test]
async fn a_node_without_a_role_reads_but_does_not_write() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    let mut session = engine.session();
    assert_eq!(integer(&mut session, "SELECT 1").await, 1);
    assert!(matches!(
        run(&mut session, "CREATE TABLE t(a)").await,
        Err(Error::ReadOnly(_))
    ));
    eventually("no read is left open", || engine.stats().open_reads == 0).await;
}

/// The engine compiles a statement against the newest schema; a read whose snapshot is older
/// fails then, and must start over without its client's knowing.
#[tokio::test(flavor = "multi_thread")]
async fn reads_do_not_fail_while_the_schema_changes() {
    let node = Node::start();
    ok(
        &mut node.session(),
        "CREATE TABLE t(id INTEGER PRIMARY KEY, c)",
    )
    .await;
    let mut readers = tokio::task::JoinSet::new();
    for reader in 0..4 {
        let mut session = node.session();
        readers.spawn(async move {
            for n in 0..500 {
                // Never the same text, so that each is compiled anew.
                ok(
                    &mut session,
                    &format!("SELECT count(*), {reader}, {n} FROM t"),
                )
                .await;
            }
        });
    }
    let mut writer = node.session();
    let mut changes = 0;
    while !readers.is_empty() {
        ok(&mut writer, &format!("CREATE TABLE side_{changes}(a, b)")).await;
        ok(&mut writer, &format!("DROP TABLE side_{changes}")).await;
        changes += 1;
        while let Some(reader) = readers.try_join_next() {
            reader.unwrap();
        }
    }
    assert!(changes > 0);
}
