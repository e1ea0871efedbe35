//! Settings: what a new connection has, and what the engine lets a client change.

use crate::bed::{Bed, fails, head, integers, log_after, rows, run, run_all, texts, transact};

const TABLE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, x)";

/// Fact 19.
#[test]
fn another_connection_can_switch_to_mvcc_and_the_log_is_overwritten() {
    let bed = Bed::new();
    let mut capturing = bed.capturing();
    run_all(&mut capturing, &[TABLE, "INSERT INTO t VALUES (1, 1)"]);
    fails(&mut capturing, "PRAGMA journal_mode = 'mvcc'");
    let mut other = bed.plain();
    assert_eq!(texts(&mut other, "PRAGMA journal_mode = 'mvcc'"), ["mvcc"]);
    let first = "SELECT table_name FROM turso_cdc WHERE change_id = 1";
    assert_eq!(texts(&mut capturing, first), ["sqlite_schema"]);
    run(&mut capturing, "INSERT INTO t VALUES (2, 2)");
    assert_eq!(
        texts(&mut capturing, first),
        ["t"],
        "position 1 was written again"
    );
}

/// Fact 20.
#[test]
fn with_mvcc_ids_commit_out_of_order() {
    let bed = Bed::new();
    let mut a = bed.plain();
    assert_eq!(texts(&mut a, "PRAGMA journal_mode = 'mvcc'"), ["mvcc"]);
    let mut a = bed.capturing();
    run(&mut a, TABLE);
    let mut b = bed.capturing();
    run(&mut a, "BEGIN CONCURRENT");
    run(&mut a, "INSERT INTO t VALUES (1, 1)");
    run(&mut b, "BEGIN CONCURRENT");
    run(&mut b, "INSERT INTO t VALUES (2, 2)");
    run(&mut b, "COMMIT");
    let cursor = head(&mut bed.plain());
    let late = a.execute("COMMIT", &[]);
    let mut reader = bed.plain();
    let beyond = log_after(&mut reader, cursor);
    let lost = late.is_err() || !beyond.contains(&"insert t 1".to_owned());
    assert!(lost, "a cursor at {cursor} sees row 1: {beyond:?}");
}

/// Fact 21.
#[test]
fn a_client_can_switch_off_what_keeps_data_safe() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(&mut c, &[TABLE, "INSERT INTO t VALUES (1, 1)"]);
    run(&mut c, "PRAGMA synchronous = off");
    assert_eq!(integers(&mut c, "PRAGMA synchronous"), [0]);
    run(&mut c, "PRAGMA capture_data_changes_conn('off')");
    let before = head(&mut c);
    run(&mut c, "INSERT INTO t VALUES (2, 2)");
    assert_eq!(head(&mut c), before);
    let copy = bed.dir().join("anywhere.db");
    run(&mut c, &format!("VACUUM INTO '{}'", copy.display()));
    assert!(copy.exists());
    run(&mut c, "PRAGMA writable_schema = 1");
}

/// Fact 35.
#[test]
fn a_new_connection_has_neither_capture_nor_foreign_keys() {
    let bed = Bed::new();
    drop(bed.capturing());
    let mut c = bed.plain();
    assert_eq!(texts(&mut c, "PRAGMA capture_data_changes_conn"), ["off"]);
    assert_eq!(integers(&mut c, "PRAGMA foreign_keys"), [0]);
    assert_eq!(integers(&mut c, "PRAGMA busy_timeout"), [0]);
    assert_eq!(texts(&mut c, "PRAGMA journal_mode"), ["wal"]);
}

/// Fact 39.
#[test]
fn capture_into_a_temporary_table_is_accepted_and_then_fails() {
    let bed = Bed::new();
    let mut c = bed.plain();
    run(&mut c, TABLE);
    let accepted = c.execute("PRAGMA capture_data_changes_conn('id,temp.x')", &[]);
    let wrote = c.execute("INSERT INTO t VALUES (1, 1)", &[]);
    assert!(accepted.is_ok() && wrote.is_err(), "{accepted:?} {wrote:?}");
}

/// Fact 52.
#[test]
fn an_unknown_pragma_answers_nothing() {
    let bed = Bed::new();
    let mut c = bed.plain();
    assert!(rows(&mut c, "PRAGMA no_such_setting").is_empty());
    assert!(rows(&mut c, "PRAGMA no_such_setting = 4").is_empty());
}

/// Useful and measured to work: the engine's own read-only switch.
#[test]
fn query_only_refuses_writes() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(&mut c, TABLE);
    let mut reader = bed.plain();
    run(&mut reader, "PRAGMA query_only = 1");
    fails(&mut reader, "INSERT INTO t VALUES (1, 1)");
    fails(&mut reader, "CREATE TABLE u(x)");
    transact(&mut c, &["INSERT INTO t VALUES (1, 1)"]);
    assert_eq!(integers(&mut reader, "SELECT count(*) FROM t"), [1]);
}

/// The applier switches checks off: rows are put as they are.
#[test]
fn check_constraints_can_be_ignored_for_a_connection() {
    let bed = Bed::new();
    let mut c = bed.plain();
    run(&mut c, "CREATE TABLE t(x CHECK (x > 0))");
    fails(&mut c, "INSERT INTO t VALUES (-1)");
    run(&mut c, "PRAGMA ignore_check_constraints = 1");
    run(&mut c, "INSERT INTO t VALUES (-1)");
}
