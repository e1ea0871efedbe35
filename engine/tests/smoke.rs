//! The factory opens a directory, and the log appears lazily.

use tidegate_engine::{Store, names, store::table_exists};

#[test]
fn a_new_directory_is_created_locked_and_captured() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("d")).unwrap();
    let mut reader = store.reader().unwrap();
    assert!(!table_exists(&mut reader, names::CAPTURE_TABLE).unwrap());
    let mut writer = store.capturing(true).unwrap();
    writer.execute("BEGIN IMMEDIATE", &[]).unwrap();
    writer
        .execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v)", &[])
        .unwrap();
    writer
        .execute("INSERT INTO t VALUES (1, 'x')", &[])
        .unwrap();
    writer.execute("COMMIT", &[]).unwrap();
    let rows = reader
        .query_all(
            "SELECT change_id, change_type, table_name, id FROM turso_cdc",
            &[],
        )
        .unwrap();
    eprintln!("{rows:?}");
    assert_eq!(rows.len(), 3);
    assert!(
        reader
            .execute("INSERT INTO t VALUES (2, 'y')", &[])
            .is_err()
    );
    let error = Store::open(&dir.path().join("d"))
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains(&std::process::id().to_string()), "{error}");
}
