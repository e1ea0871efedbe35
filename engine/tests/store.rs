//! The factory opens a directory, locks it, and makes connections that do what they say.

use tidegate_engine::{Store, names, store::table_exists};

#[test]
fn a_new_directory_is_created_locked_and_captured() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("d")).unwrap();
    let mut reader = store.reader().unwrap();
    assert!(!table_exists(&mut reader, names::CAPTURE_TABLE).unwrap());
    let mut writer = store.capturing(true).unwrap();
    for sql in [
        "BEGIN IMMEDIATE",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v)",
        "INSERT INTO t VALUES (1, 'x')",
        "COMMIT",
    ] {
        writer.execute(sql, &[]).unwrap();
    }
    let log = reader
        .query_all("SELECT change_type FROM turso_cdc ORDER BY change_id", &[])
        .unwrap();
    assert_eq!(log, [[1.into()], [1.into()], [2.into()]]);
    let refused = reader.execute("INSERT INTO t VALUES (2, 'y')", &[]);
    assert!(refused.is_err());
}

#[test]
fn a_directory_in_use_names_the_process_that_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let _store = Store::open(dir.path()).unwrap();
    let error = Store::open(dir.path()).err().unwrap().to_string();
    assert!(error.contains(&std::process::id().to_string()), "{error}");
}
