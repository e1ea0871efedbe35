//! What changes without a log row of its own: sequences, header values.

use crate::bed::{Bed, fails, head, integers, logged, rows, run, run_all, texts, transact};

/// Fact 13.
#[test]
fn the_sequence_of_an_autoincrement_table_is_not_logged() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(
        &mut c,
        "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, x)",
    );
    let changes = logged(&mut c, |c| transact(c, &["INSERT INTO t(x) VALUES (1)"]));
    assert_eq!(changes, ["insert t 1", "commit"]);
    assert_eq!(
        integers(&mut c, "SELECT seq FROM sqlite_sequence WHERE name = 't'"),
        [1]
    );
}

/// Edge 3.
#[test]
fn an_ignored_insert_moves_the_sequence_without_a_log_row() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, x UNIQUE)",
            "INSERT INTO t(x) VALUES (1)",
        ],
    );
    let changes = logged(&mut c, |c| {
        transact(c, &["INSERT OR IGNORE INTO t(x) VALUES (1)"]);
    });
    assert!(changes.iter().all(|l| l == "commit"), "{changes:?}");
    assert_eq!(
        integers(&mut c, "SELECT seq FROM sqlite_sequence WHERE name = 't'"),
        [2]
    );
}

/// Fact 74.
#[test]
fn an_or_fail_that_fails_at_once_keeps_the_sequence_it_took() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, u UNIQUE)",
            "INSERT INTO t(u) VALUES (1)",
        ],
    );
    let changes = logged(&mut c, |c| {
        run(c, "BEGIN IMMEDIATE");
        fails(c, "INSERT OR FAIL INTO t(u) VALUES (1)");
        run(c, "COMMIT");
    });
    assert!(changes.is_empty(), "{changes:?}");
    let sequence = "SELECT seq FROM sqlite_sequence WHERE name = 't'";
    assert_eq!(integers(&mut c, sequence), [2]);
}

/// Fact 14.
#[test]
fn header_values_are_not_logged() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(&mut c, "CREATE TABLE t(x)");
    for pragma in ["user_version", "application_id"] {
        let before = head(&mut c);
        transact(&mut c, &[&format!("PRAGMA {pragma} = 77")]);
        assert_eq!(head(&mut c), before, "{pragma}");
        assert_eq!(integers(&mut c, &format!("PRAGMA {pragma}")), [77]);
    }
}

/// Fact 14, inside a transaction that is rolled back.
#[test]
fn header_values_roll_back_with_their_transaction() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &["BEGIN IMMEDIATE", "PRAGMA user_version = 5", "ROLLBACK"],
    );
    assert_eq!(integers(&mut c, "PRAGMA user_version"), [0]);
}

/// Fact 16.
#[test]
fn ids_restart_when_the_whole_log_is_deleted() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &["CREATE TABLE t(x)", "INSERT INTO t VALUES (1), (2)"],
    );
    assert!(head(&mut c) > 2);
    let mut trim = bed.plain();
    transact(&mut trim, &["DELETE FROM turso_cdc"]);
    transact(&mut c, &["INSERT INTO t VALUES (3)"]);
    assert_eq!(
        integers(&mut c, "SELECT min(change_id) FROM turso_cdc"),
        [1]
    );
}

/// Fact 16, the other trap.
#[test]
fn a_log_row_with_the_largest_id_makes_later_ids_unordered() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(&mut c, "CREATE TABLE t(x)");
    let mut other = bed.plain();
    transact(
        &mut other,
        &["INSERT INTO turso_cdc(change_id, change_type) VALUES (9223372036854775807, 2)"],
    );
    transact(&mut c, &["INSERT INTO t VALUES (3)"]);
    assert_eq!(head(&mut c), i64::MAX, "nothing can follow it");
    let later = "SELECT count(*) FROM turso_cdc WHERE table_name = 't'";
    assert_eq!(integers(&mut c, later), [1]);
}

/// Fact 17.
#[test]
fn a_client_can_change_and_delete_log_rows_without_an_error() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(&mut c, &["CREATE TABLE t(x)", "INSERT INTO t VALUES (1)"]);
    assert_eq!(run(&mut c, "DELETE FROM turso_cdc WHERE change_id = 1"), 1);
    assert_eq!(run(&mut c, "UPDATE turso_cdc SET id = 4"), 3);
    assert_eq!(
        run(
            &mut c,
            "UPDATE turso_cdc SET change_id = 900 WHERE change_id = 3"
        ),
        1
    );
    assert_eq!(
        run(&mut c, "INSERT INTO turso_cdc(change_type) VALUES (2)"),
        1
    );
    assert!(
        head(&mut c) > 900,
        "later positions follow what the client wrote"
    );
}

/// Fact 38.
#[test]
fn the_log_can_be_dropped_by_anybody() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(&mut c, "CREATE TABLE t(x)");
    run(&mut c, "DROP TABLE turso_cdc");
    let outcome = c.execute("INSERT INTO t VALUES (1)", &[]);
    assert!(outcome.is_err(), "a later write fails: {outcome:?}");
}

/// Edge 2.
#[test]
fn a_select_can_write_through_the_sequence_functions() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    let made = c.execute("CREATE SEQUENCE s", &[]);
    if made.is_err() {
        // Off by default: then the functions have nothing to move.
        fails(&mut c, "SELECT nextval('s')");
        return;
    }
    let mut reader = bed.plain();
    run(&mut reader, "PRAGMA query_only = 1");
    let first = integers(&mut reader, "SELECT nextval('s')")[0];
    let second = integers(&mut reader, "SELECT nextval('s')")[0];
    assert!(second > first, "a read-only connection moved the sequence");
}

/// Edge 3: setting a sequence needs delete and insert.
#[test]
fn a_sequence_has_no_row_until_its_first_insert() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(
        &mut c,
        "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT)",
    );
    assert_eq!(
        run(
            &mut c,
            "UPDATE sqlite_sequence SET seq = 40 WHERE name = 't'"
        ),
        0
    );
    run_all(
        &mut c,
        &[
            "DELETE FROM sqlite_sequence WHERE name = 't'",
            "INSERT INTO sqlite_sequence(name, seq) VALUES ('t', 40)",
            "INSERT INTO t DEFAULT VALUES",
        ],
    );
    assert_eq!(integers(&mut c, "SELECT id FROM t"), [41]);
}

/// Edge 26: rows that a connection inserts into the log by hand give it a sequence.
#[test]
fn the_log_has_a_sequence_of_its_own_once_a_row_is_inserted_by_hand() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(&mut c, &["CREATE TABLE t(x)", "INSERT INTO t VALUES (1)"]);
    assert!(rows(&mut c, "SELECT * FROM sqlite_sequence").is_empty());
    let mut other = bed.plain();
    run(
        &mut other,
        "INSERT INTO turso_cdc(change_id, change_type) VALUES (50, 2)",
    );
    let names = texts(&mut c, "SELECT name FROM sqlite_sequence");
    assert_eq!(names, ["turso_cdc"]);
}
