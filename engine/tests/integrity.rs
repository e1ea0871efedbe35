//! The digest proves tables, the integrity check proves indexes.

use tidegate_engine::digest::{self, KeyRange};
use tidegate_engine::{ReadView, Store, integrity};

/// A table whose index has lost all its entries: its root page was given to another index.
fn store_with_a_hollow_index(dir: &std::path::Path) -> Store {
    drop(Store::open(dir).unwrap());
    let sqlite = rusqlite::Connection::open(dir.join("tidegate.db")).unwrap();
    sqlite
        .execute_batch(
            "CREATE TABLE t (v); INSERT INTO t VALUES (1), (2), (3);
             CREATE INDEX i ON t (v);
             CREATE TABLE empty (v); CREATE INDEX e ON empty (v);
             PRAGMA writable_schema = 1;
             UPDATE sqlite_schema SET rootpage =
               (SELECT rootpage FROM sqlite_schema WHERE name = 'e') WHERE name = 'i';
             DELETE FROM sqlite_schema WHERE name IN ('e', 'empty');",
        )
        .unwrap();
    drop(sqlite);
    Store::open(dir).unwrap()
}

#[test]
fn an_index_that_lost_its_entries_is_found_by_the_check_and_hides_no_row_from_the_digest() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_with_a_hollow_index(&dir.path().join("data"));
    let mut reader = store.reader().unwrap();
    let mut view = ReadView::begin(&mut reader, store.gate()).unwrap();
    let through_index = view.query_all("SELECT v FROM t INDEXED BY i WHERE v > 0", &[]);
    assert_eq!(through_index.unwrap().len(), 0, "the index is hollow");
    let whole = digest::digest_range(&mut view, "t", KeyRange::ALL).unwrap();
    assert_eq!(whole.rows, 3);
    let found = integrity::check(&mut view).unwrap();
    let missing = |p: &String| p.contains("missing from index i");
    assert!(found.problems.iter().any(missing), "{found:?}");
}

#[test]
fn a_healthy_file_has_no_problems() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("data")).unwrap();
    let found = integrity::check(&mut store.reader().unwrap()).unwrap();
    assert_eq!(found.summary(), "ok");
}
