//! Transactions, savepoints, and errors that end a transaction.

use tidegate_engine::Error;

use crate::bed::{Bed, fails, head, integers, logged, rows, run, run_all, transact};

const TABLE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, x)";

/// Fact 1.
#[test]
fn a_write_that_can_match_no_row_panics_in_autocommit_only() {
    for sql in [
        "UPDATE t SET x = 1 WHERE 0",
        "UPDATE t SET x = 1 WHERE id IN ()",
        "DELETE FROM t WHERE 0",
    ] {
        let bed = Bed::new();
        let mut c = bed.capturing();
        run(&mut c, TABLE);
        transact(&mut c, &[sql]);
        let error = fails(&mut c, sql);
        assert!(matches!(error, Error::Panicked(_)), "{sql}: {error}");
        assert!(c.is_broken(), "{sql}");
    }
}

/// Fact 36.
#[test]
fn a_savepoint_released_outside_a_transaction_commits_without_a_commit_record() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(&mut c, TABLE);
    let changes = logged(&mut c, |c| {
        run_all(
            c,
            &["SAVEPOINT s", "INSERT INTO t VALUES (1, 1)", "RELEASE s"],
        );
        assert!(c.is_autocommit());
    });
    assert_eq!(changes, ["insert t 1"]);
}

/// Facts 36 and 43: in a transaction of ours there is exactly one commit record.
#[test]
fn savepoints_inside_a_transaction_log_what_survived_and_one_commit() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(&mut c, TABLE);
    let changes = logged(&mut c, |c| {
        transact(
            c,
            &[
                "INSERT INTO t VALUES (1, 1)",
                "SAVEPOINT s",
                "INSERT INTO t VALUES (2, 2)",
                "ROLLBACK TO s",
                "INSERT INTO t VALUES (3, 3)",
                "RELEASE s",
            ],
        );
    });
    assert_eq!(changes, ["insert t 1", "insert t 3", "commit"]);
}

/// Fact 43.
#[test]
fn a_write_without_effect_logs_an_empty_commit_in_autocommit_and_nothing_in_a_transaction() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(&mut c, TABLE);
    let autocommit = logged(&mut c, |c| {
        run(c, "UPDATE t SET x = 1 WHERE id = 99");
    });
    assert_eq!(autocommit, ["empty commit"]);
    let explicit = logged(&mut c, |c| {
        transact(c, &["UPDATE t SET x = 1 WHERE id = 99"]);
    });
    assert!(explicit.is_empty(), "{explicit:?}");
}

/// Fact 51.
#[test]
fn a_deferred_transaction_that_writes_after_another_commit_has_a_stale_snapshot() {
    let bed = Bed::new();
    let mut a = bed.capturing();
    let mut b = bed.capturing();
    run_all(&mut a, &[TABLE, "INSERT INTO t VALUES (1, 1)"]);
    run(&mut b, "BEGIN");
    assert_eq!(integers(&mut b, "SELECT x FROM t"), [1]);
    transact(&mut a, &["UPDATE t SET x = 2"]);
    let error = fails(&mut b, "UPDATE t SET x = 3");
    assert!(matches!(error, Error::StaleSnapshot), "{error}");
    assert!(!b.is_autocommit(), "the transaction is still open");
    run(&mut b, "ROLLBACK");
    assert_eq!(integers(&mut b, "SELECT x FROM t"), [2]);
}

/// Fact 51, the other half: before its first read a deferred transaction has no snapshot.
#[test]
fn a_deferred_transaction_takes_its_snapshot_at_the_first_read() {
    let bed = Bed::new();
    let mut a = bed.capturing();
    let mut b = bed.capturing();
    run_all(&mut a, &[TABLE, "INSERT INTO t VALUES (1, 1)"]);
    run(&mut b, "BEGIN");
    transact(&mut a, &["UPDATE t SET x = 2"]);
    assert_eq!(integers(&mut b, "SELECT x FROM t"), [2]);
    run(&mut b, "COMMIT");
}

/// Fact 58.
#[test]
fn read_only_and_concurrent_transactions_are_not_what_they_say() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(&mut c, TABLE);
    fails(&mut c, "BEGIN READONLY");
    assert!(c.is_autocommit());
    run(&mut c, "BEGIN TRANSACTION READONLY");
    run(&mut c, "INSERT INTO t VALUES (1, 1)");
    run(&mut c, "COMMIT");
    assert_eq!(integers(&mut c, "SELECT count(*) FROM t"), [1]);
    fails(&mut c, "BEGIN CONCURRENT");
    assert!(c.is_autocommit());
}

/// Edge 4.
#[test]
fn some_errors_roll_the_whole_transaction_back_even_from_a_select() {
    for sql in [
        "SELECT json('{bad')",
        "SELECT abs(-9223372036854775808)",
        "SELECT sum(v) FROM (SELECT 9223372036854775807 AS v UNION ALL SELECT 1)",
    ] {
        let bed = Bed::new();
        let mut c = bed.capturing();
        run(&mut c, TABLE);
        run(&mut c, "BEGIN IMMEDIATE");
        run(&mut c, "INSERT INTO t VALUES (1, 1)");
        fails(&mut c, sql);
        assert!(c.is_autocommit(), "{sql} leaves the transaction open");
        assert!(rows(&mut c, "SELECT * FROM t").is_empty(), "{sql}");
    }
}

/// Edge 4, the other side: a refused constraint leaves the transaction open.
#[test]
fn constraint_errors_undo_their_statement_only() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(&mut c, TABLE);
    let changes = logged(&mut c, |c| {
        run(c, "BEGIN IMMEDIATE");
        run(c, "INSERT INTO t VALUES (1, 1)");
        fails(c, "INSERT INTO t VALUES (2, 2), (1, 1)");
        assert!(!c.is_autocommit());
        run(c, "COMMIT");
    });
    assert_eq!(changes, ["insert t 1", "commit"]);
}

/// Edge 4: the conflict clause that asks for it ends the transaction too.
#[test]
fn or_rollback_ends_the_transaction() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(&mut c, &[TABLE, "INSERT INTO t VALUES (1, 1)"]);
    let before = head(&mut c);
    run(&mut c, "BEGIN IMMEDIATE");
    run(&mut c, "INSERT INTO t VALUES (2, 2)");
    fails(&mut c, "INSERT OR ROLLBACK INTO t VALUES (1, 1)");
    assert!(c.is_autocommit());
    assert_eq!(integers(&mut c, "SELECT id FROM t"), [1]);
    assert_eq!(head(&mut c), before);
}

/// Edge 5.
#[test]
fn the_foreign_keys_pragma_takes_effect_inside_a_transaction_and_survives_rollback() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(&mut c, "BEGIN IMMEDIATE");
    run(&mut c, "PRAGMA foreign_keys = 1");
    assert_eq!(integers(&mut c, "PRAGMA foreign_keys"), [1]);
    run(&mut c, "ROLLBACK");
    assert_eq!(integers(&mut c, "PRAGMA foreign_keys"), [1]);
}

/// Edge 7.
#[test]
fn a_commit_refused_by_a_deferred_key_leaves_the_transaction_open() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "PRAGMA foreign_keys = 1",
            "CREATE TABLE p(id INTEGER PRIMARY KEY)",
            "CREATE TABLE k(p REFERENCES p(id) DEFERRABLE INITIALLY DEFERRED)",
            "BEGIN IMMEDIATE",
            "INSERT INTO k VALUES (1)",
        ],
    );
    let error = fails(&mut c, "COMMIT");
    assert!(
        matches!(
            error,
            Error::Sql {
                code: "SQLITE_CONSTRAINT_FOREIGNKEY",
                ..
            }
        ),
        "{error:?}"
    );
    assert!(!c.is_autocommit());
    run(&mut c, "ROLLBACK");
}

/// Verified because the model leans on it: what a read transaction sees does not move.
#[test]
fn a_read_transaction_keeps_head_rows_and_schema_while_others_write_and_alter() {
    let bed = Bed::new();
    let mut writer = bed.capturing();
    let mut reader = bed.plain();
    run_all(&mut writer, &[TABLE, "INSERT INTO t VALUES (1, 1)"]);
    run(&mut reader, "BEGIN");
    let head_then = head(&mut reader);
    transact(&mut writer, &["INSERT INTO t VALUES (2, 2)"]);
    transact(&mut writer, &["ALTER TABLE t ADD COLUMN y DEFAULT 4"]);
    assert_eq!(head(&mut reader), head_then);
    assert_eq!(rows(&mut reader, "SELECT * FROM t"), [[1.into(), 1.into()]]);
    run(&mut reader, "COMMIT");
    assert_eq!(rows(&mut reader, "SELECT * FROM t")[1].len(), 3);
    assert!(head(&mut reader) > head_then);
}
