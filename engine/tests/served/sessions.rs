//! What belongs to a session survives sharing connections with others.

use tidegate_engine::{Params, Value};

use crate::support::{Node, code, integer, ok, run};

#[tokio::test]
async fn session_functions_answer_for_the_session_that_asks() {
    let node = Node::start();
    let (mut a, mut b) = (node.session(), node.session());
    ok(&mut a, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)").await;
    ok(&mut a, "INSERT INTO t VALUES (10, 'a'), (11, 'a')").await;
    ok(&mut b, "INSERT INTO t VALUES (20, 'b')").await;
    let ask = "SELECT last_insert_rowid() * 100 + changes() * 10 + total_changes()";
    assert_eq!(integer(&mut a, ask).await, 1_122);
    assert_eq!(integer(&mut b, ask).await, 2_011);
    assert_eq!(integer(&mut node.session(), ask).await, 0);
    ok(&mut b, "UPDATE t SET v = 'c'").await;
    assert_eq!(integer(&mut b, ask).await, 2_034);
    ok(&mut a, "INSERT INTO t(v) VALUES (last_insert_rowid())").await;
    assert_eq!(integer(&mut a, "SELECT v FROM t WHERE id = 21").await, 11);
    assert_eq!(integer(&mut a, "SELECT last_insert_rowid()").await, 21);
}

#[tokio::test]
async fn session_functions_go_on_through_a_transaction() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)").await;
    ok(&mut session, "INSERT INTO t VALUES (5, 'x')").await;
    ok(&mut session, "BEGIN").await;
    assert_eq!(integer(&mut session, "SELECT last_insert_rowid()").await, 5);
    ok(
        &mut session,
        "INSERT INTO t VALUES (6, last_insert_rowid())",
    )
    .await;
    ok(&mut session, "COMMIT").await;
    assert_eq!(integer(&mut session, "SELECT last_insert_rowid()").await, 6);
    assert_eq!(
        integer(&mut session, "SELECT v FROM t WHERE id = 6").await,
        5
    );
}

#[tokio::test]
async fn the_same_row_id_in_another_table_is_still_the_sessions_own() {
    let node = Node::start();
    let (mut a, mut b) = (node.session(), node.session());
    ok(&mut a, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)").await;
    ok(&mut a, "CREATE TABLE u(id INTEGER PRIMARY KEY, v UNIQUE)").await;
    ok(&mut a, "INSERT INTO t VALUES (1, 'a')").await;
    let wrote = ok(&mut b, "INSERT INTO u VALUES (1, 'b')").await;
    assert_eq!(wrote.last_insert_rowid, Some(1));
    assert_eq!(integer(&mut b, "SELECT last_insert_rowid()").await, 1);
    // An upsert that only updates inserts nothing, whoever inserted before it.
    let mut c = node.session();
    ok(&mut a, "INSERT INTO t VALUES (9, 'a')").await;
    let upsert = "INSERT INTO u(v) VALUES ('b') ON CONFLICT(v) DO UPDATE SET v = 'c'";
    ok(&mut c, upsert).await;
    assert_eq!(integer(&mut c, "SELECT last_insert_rowid()").await, 0);
}

#[tokio::test]
async fn a_trigger_that_asks_for_the_session_gets_the_session() {
    let node = Node::start();
    let (mut a, mut b) = (node.session(), node.session());
    ok(&mut a, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)").await;
    ok(&mut a, "CREATE TABLE seen(n)").await;
    ok(&mut a, "INSERT INTO t VALUES (41, 'a')").await;
    ok(&mut b, "INSERT INTO t VALUES (77, 'b')").await;
    ok(
        &mut a,
        "CREATE TRIGGER g BEFORE UPDATE ON t BEGIN INSERT INTO seen VALUES (last_insert_rowid()); END",
    )
    .await;
    ok(&mut a, "UPDATE t SET v = 'z' WHERE id = 41").await;
    assert_eq!(integer(&mut a, "SELECT n FROM seen").await, 41);
    let tables = integer(&mut b, "SELECT count(*) FROM seen").await;
    assert_eq!(tables, 1);
    assert_eq!(node.engine.stats().uncaptured_writes, 0);
}

#[tokio::test]
async fn one_clients_parameters_are_never_anothers() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a, b)").await;
    let insert = "INSERT INTO t VALUES (?, ?)";
    let both = Params::positional([Value::from("secret"), Value::from("secret")]);
    session.execute(insert, both, false).await.unwrap();
    let one = Params::positional([Value::from("x")]);
    session.execute(insert, one, false).await.unwrap();
    let rows = ok(&mut session, "SELECT a, b FROM t WHERE a = 'x'")
        .await
        .rows;
    assert_eq!(rows, vec![vec![Value::from("x"), Value::Null]]);
    let three = Params::positional([1.into(), 2.into(), 3.into()]);
    let refused = session.execute(insert, three, false).await;
    assert_eq!(code(&refused), "SQLITE_RANGE");
}

#[tokio::test]
async fn parameters_are_found_by_name_with_and_without_prefix() {
    let node = Node::start();
    let mut session = node.session();
    let sql = "SELECT :a || @b || $c || ?7";
    let named = [("a", "1"), ("@b", "2"), ("c", "3"), ("?7", "4")];
    let params = Params {
        positional: Vec::new(),
        named: named.map(|(n, v)| (n.to_owned(), Value::from(v))).into(),
    };
    let found = session.execute(sql, params, true).await.unwrap();
    assert_eq!(found.single().unwrap().as_text(), Some("1234"));
    let params = Params {
        positional: Vec::new(),
        named: vec![("nobody".into(), Value::Null)],
    };
    let refused = session.execute(sql, params, true).await;
    assert_eq!(code(&refused), "SQLITE_RANGE");
}

#[tokio::test]
async fn a_script_runs_in_order_and_stops_at_the_first_error() {
    let node = Node::start();
    let mut session = node.session();
    let script = "CREATE TABLE t(a UNIQUE); -- one
        INSERT INTO t VALUES (1); BEGIN; INSERT INTO t VALUES (2); COMMIT;
        CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM t WHERE a = 2; SELECT 1; END;
        INSERT INTO t VALUES (1); INSERT INTO t VALUES (99)";
    assert!(session.execute_script(script).await.is_err());
    assert_eq!(integer(&mut session, "SELECT sum(a) FROM t").await, 3);
}

#[tokio::test]
async fn describing_tells_columns_and_parameters_and_runs_nothing() {
    let node = Node::start();
    let mut session = node.session();
    ok(
        &mut session,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)",
    )
    .await;
    let read = session
        .describe("SELECT id, v FROM t WHERE id = :id")
        .await
        .unwrap();
    assert_eq!(read.columns[1].name, "v");
    assert_eq!(read.columns[1].decltype.as_deref(), Some("TEXT"));
    assert_eq!(read.parameters, vec![Some(":id".to_owned())]);
    assert!(read.is_readonly && !read.is_explain);
    let write = session
        .describe("INSERT INTO t(v) VALUES (?) RETURNING id")
        .await
        .unwrap();
    assert!(!write.is_readonly);
    ok(&mut session, "BEGIN").await;
    ok(&mut session, "CREATE TABLE u(x)").await;
    assert_eq!(
        session
            .describe("SELECT * FROM u")
            .await
            .unwrap()
            .columns
            .len(),
        1
    );
    ok(&mut session, "ROLLBACK").await;
    assert!(session.describe("SELECT * FROM u").await.is_err());
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 0);
}

#[tokio::test]
async fn ending_what_was_not_begun_is_an_error() {
    let node = Node::start();
    let mut session = node.session();
    for sql in ["COMMIT", "END", "ROLLBACK", "RELEASE s", "ROLLBACK TO s"] {
        assert_eq!(code(&run(&mut session, sql).await), "SQLITE_ERROR", "{sql}");
    }
    assert!(ok(&mut session, " -- nothing\n").await.rows.is_empty());
}
