//! Group commit: each client sees what a transaction of its own would have shown.

use crate::support::{Node, code, integer, ok};

#[tokio::test]
async fn statements_that_wait_together_share_one_commit() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)").await;
    let before = node.engine.stats().group_commit_size.count();
    let inserts = ["INSERT INTO t(v) VALUES (1)"; 10];
    let outcomes = node.run_together(&inserts).await;
    let positions: Vec<_> = outcomes
        .into_iter()
        .map(|outcome| outcome.unwrap().position.unwrap())
        .collect();
    assert!(positions.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(node.engine.stats().group_commit_size.count(), before + 1);
}

#[tokio::test]
async fn a_constraint_error_in_a_group_is_one_clients_alone() {
    let node = Node::start();
    let mut session = node.session();
    ok(
        &mut session,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v NOT NULL)",
    )
    .await;
    let outcomes = node
        .run_together(&[
            "INSERT INTO t VALUES (1, 'a')",
            "INSERT INTO t VALUES (5, 'x'), (6, 'y'), (1, 'twice')",
            "INSERT INTO t VALUES (2, NULL)",
            "INSERT INTO nowhere VALUES (1)",
            "INSERT INTO t VALUES (3, 'c')",
        ])
        .await;
    assert!(outcomes[0].is_ok() && outcomes[4].is_ok());
    assert!(code(&outcomes[1]).starts_with("SQLITE_CONSTRAINT"));
    assert_eq!(code(&outcomes[2]), "SQLITE_CONSTRAINT_NOTNULL");
    assert_eq!(code(&outcomes[3]), "SQLITE_ERROR");
    let ids = ok(&mut session, "SELECT group_concat(id) FROM t").await;
    assert_eq!(ids.single().unwrap().as_text(), Some("1,3"));
    assert!(node.engine.stats().groups_rerun.is_empty());
}

#[tokio::test]
async fn or_fail_keeps_its_rows_and_or_rollback_harms_nobody_else() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(id INTEGER PRIMARY KEY)").await;
    ok(&mut session, "INSERT INTO t VALUES (10)").await;
    let fail = "INSERT OR FAIL INTO t VALUES (1), (2), (10), (3)";
    let outcomes = node
        .run_together(&[
            "INSERT INTO t VALUES (20)",
            fail,
            "INSERT OR ROLLBACK INTO t VALUES (30), (10)",
            "INSERT INTO t VALUES (21)",
        ])
        .await;
    assert!(outcomes[0].is_ok() && outcomes[3].is_ok());
    assert!(code(&outcomes[1]).starts_with("SQLITE_CONSTRAINT"));
    assert!(code(&outcomes[2]).starts_with("SQLITE_CONSTRAINT"));
    let ids = "SELECT group_concat(id) FROM (SELECT id FROM t ORDER BY id)";
    let ids = ok(&mut session, ids).await;
    assert_eq!(ids.single().unwrap().as_text(), Some("1,2,10,20,21"));
    // Alone it keeps its rows just the same.
    let alone = crate::support::run(&mut session, "INSERT OR FAIL INTO t VALUES (4), (10)").await;
    assert!(code(&alone).starts_with("SQLITE_CONSTRAINT"));
    assert_eq!(
        integer(&mut session, "SELECT count(*) FROM t WHERE id = 4").await,
        1
    );
}

#[tokio::test]
async fn an_error_that_ends_the_transaction_ends_nobody_elses_statement() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)").await;
    let killer = "INSERT INTO t(v) VALUES (json('{bad'))";
    let good = "INSERT INTO t(v) VALUES (1)";
    let outcomes = node
        .run_together(&[good, killer, good, killer, good, killer, good])
        .await;
    for (n, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome.is_ok(), n % 2 == 0, "statement {n}: {outcome:?}");
    }
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 4);
    assert_eq!(node.engine.stats().engine_panics, 0);
}

#[tokio::test]
async fn a_deferred_foreign_key_is_not_excused_by_a_neighbour() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE p(id INTEGER PRIMARY KEY)").await;
    let child = "CREATE TABLE c(p REFERENCES p(id) DEFERRABLE INITIALLY DEFERRED)";
    ok(&mut session, child).await;
    let outcomes = node
        .run_together(&[
            "INSERT INTO c VALUES (1)",
            "INSERT INTO p VALUES (1)",
            "INSERT INTO c VALUES (1)",
        ])
        .await;
    assert_eq!(code(&outcomes[0]), "SQLITE_CONSTRAINT_FOREIGNKEY");
    assert!(outcomes[1].is_ok() && outcomes[2].is_ok());
    assert_eq!(integer(&mut session, "SELECT count(*) FROM c").await, 1);
}

#[tokio::test]
async fn a_schema_change_in_the_queue_counts_for_those_behind_it() {
    let node = Node::start();
    let mut session = node.session();
    ok(
        &mut session,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v UNIQUE)",
    )
    .await;
    let outcomes = node
        .run_together(&[
            "INSERT INTO t VALUES (1, 'a')",
            "ALTER TABLE t ADD COLUMN w",
            "INSERT INTO t VALUES (2, 'b', 'c')",
            "CREATE TRIGGER g AFTER INSERT ON t BEGIN UPDATE t SET v = NULL WHERE id = 1; END",
            "REPLACE INTO t VALUES (2, 'b', 'c')",
        ])
        .await;
    assert!(outcomes[..4].iter().all(Result::is_ok), "{outcomes:?}");
    // Judged anew under the schema that it met: it would evict rows uncaptured.
    assert_eq!(code(&outcomes[4]), "TIDEGATE_REFUSED");
}

#[tokio::test]
async fn writes_that_change_nothing_neither_panic_nor_move_the_head() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)").await;
    let head = node.engine.head().borrow().seq;
    for sql in [
        "UPDATE t SET x = 1 WHERE 0",
        "UPDATE t SET x = 1 WHERE id IN ()",
        "DELETE FROM t WHERE 0",
        "DELETE FROM t",
    ] {
        assert_eq!(ok(&mut session, sql).await.changes, 0, "{sql}");
    }
    assert_eq!(node.engine.head().borrow().seq, head);
    assert_eq!(node.engine.stats().engine_panics, 0);
}

#[tokio::test]
async fn sessions_with_and_without_foreign_keys_write_side_by_side() {
    let node = Node::start();
    let mut strict = node.session();
    ok(&mut strict, "CREATE TABLE p(id INTEGER PRIMARY KEY)").await;
    ok(&mut strict, "CREATE TABLE c(p REFERENCES p(id))").await;
    let mut lax = node.session();
    ok(&mut lax, "PRAGMA foreign_keys = OFF").await;
    assert_eq!(integer(&mut lax, "PRAGMA foreign_keys").await, 0);
    assert_eq!(integer(&mut strict, "PRAGMA foreign_keys").await, 1);
    ok(&mut lax, "INSERT INTO c VALUES (7)").await;
    let refused = crate::support::run(&mut strict, "INSERT INTO c VALUES (8)").await;
    assert_eq!(code(&refused), "SQLITE_CONSTRAINT_FOREIGNKEY");
    // Inside a transaction the setting stays what it was.
    ok(&mut strict, "BEGIN").await;
    ok(&mut strict, "PRAGMA foreign_keys = OFF").await;
    assert_eq!(integer(&mut strict, "PRAGMA foreign_keys").await, 1);
    let refused = crate::support::run(&mut strict, "INSERT INTO c VALUES (8)").await;
    assert_eq!(code(&refused), "SQLITE_CONSTRAINT_FOREIGNKEY");
    ok(&mut strict, "COMMIT").await;
}
