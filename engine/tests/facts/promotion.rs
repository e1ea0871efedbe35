//! The steps that apply and promotion stand on.

use crate::bed::{Bed, head, integers, log, run, run_all, transact};

/// A file that holds a log as a replica writes it: rows with explicit ids, capture off.
fn replica() -> (Bed, tidegate_engine::adapter::Connection) {
    let bed = Bed::new();
    let mut c = bed.plain();
    run_all(
        &mut c,
        &[
            "PRAGMA capture_data_changes_conn('id')",
            "PRAGMA capture_data_changes_conn('off')",
            "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, v)",
        ],
    );
    transact(
        &mut c,
        &[
            "INSERT INTO t VALUES (5, 'x')",
            "INSERT INTO turso_cdc(change_id, change_time, change_txn_id, change_type, table_name, id) \
             VALUES (100, 1, 99, 1, 't', 5), (104, 1, 99, 2, NULL, NULL)",
        ],
    );
    (bed, c)
}

/// Verified: with capture off a connection inserts log rows with ids of its own choice.
#[test]
fn log_rows_can_be_inserted_with_explicit_ids() {
    let (_bed, mut c) = replica();
    assert_eq!(head(&mut c), 104);
    assert_eq!(log(&mut c), ["insert t 5", "commit"]);
}

/// Verified: capture switched on afterwards goes on at max + 1.
#[test]
fn capture_goes_on_after_the_newest_log_row() {
    let (_bed, mut c) = replica();
    run(&mut c, "PRAGMA capture_data_changes_conn('id')");
    transact(&mut c, &["INSERT INTO t(v) VALUES ('after')"]);
    let ids = "SELECT change_id FROM turso_cdc ORDER BY change_id";
    assert_eq!(integers(&mut c, ids), [100, 104, 105, 106]);
}

/// Verified: trimming all but the newest row keeps ids ascending.
#[test]
fn trimming_all_but_the_newest_row_keeps_ids_ascending() {
    let (bed, mut c) = replica();
    transact(
        &mut c,
        &["DELETE FROM turso_cdc WHERE change_id < (SELECT max(change_id) FROM turso_cdc)"],
    );
    let mut capturing = bed.capturing();
    transact(&mut capturing, &["INSERT INTO t(v) VALUES ('after')"]);
    let ids = "SELECT change_id FROM turso_cdc ORDER BY change_id";
    assert_eq!(integers(&mut c, ids), [104, 105, 106]);
}

/// Verified: a sequence that was set is honoured by the next insert.
#[test]
fn a_sequence_can_be_set() {
    let (_bed, mut c) = replica();
    transact(
        &mut c,
        &["UPDATE sqlite_sequence SET seq = 40 WHERE name = 't'"],
    );
    transact(&mut c, &["INSERT INTO t(v) VALUES ('next')"]);
    assert_eq!(integers(&mut c, "SELECT max(id) FROM t"), [41]);
}

/// Verified: triggers can be dropped and made again around data in one transaction.
#[test]
fn triggers_can_be_dropped_and_made_in_the_transaction_that_writes_rows() {
    let (_bed, mut c) = replica();
    let trigger = "CREATE TRIGGER tr AFTER INSERT ON t BEGIN INSERT INTO m VALUES (new.id); END";
    run_all(&mut c, &["CREATE TABLE m(id)", trigger]);
    transact(
        &mut c,
        &[
            "DROP TRIGGER tr",
            "INSERT INTO t VALUES (50, 'quiet')",
            trigger,
        ],
    );
    assert_eq!(integers(&mut c, "SELECT count(*) FROM m"), [0]);
    transact(&mut c, &["INSERT INTO t VALUES (51, 'loud')"]);
    assert_eq!(integers(&mut c, "SELECT id FROM m"), [51]);
}
