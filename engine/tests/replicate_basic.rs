//! A second file kept equal from the log: data.

use tidegate_engine::testing::Pair;

fn pair() -> (tempfile::TempDir, Pair) {
    let dir = tempfile::tempdir().unwrap();
    let pair = Pair::new(dir.path()).unwrap();
    (dir, pair)
}

/// Ships and demands that both are equal.
fn equal(pair: &mut Pair) {
    pair.ship().unwrap();
    let differences = pair.differences().unwrap();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Runs a script, shipping after each line, and once more with one batch for all.
fn replicates(script: &str) {
    let (_dir, mut each) = pair();
    let (_dir2, mut once) = pair();
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        // `!` marks a statement that must fail.
        let (line, fails) = match line.strip_prefix('!') {
            Some(line) => (line, true),
            None => (line, false),
        };
        let ran = each.run(line);
        assert_eq!(ran.is_err(), fails, "{line}: {ran:?}");
        equal(&mut each);
        once.run(line).ok();
    }
    equal(&mut once);
}

#[test]
fn an_empty_pair_is_equal() {
    let (_dir, mut pair) = pair();
    equal(&mut pair);
    assert!(pair.ship().unwrap().is_none(), "nothing new");
}

#[test]
fn inserts_updates_deletes() {
    replicates(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v)
         INSERT INTO t VALUES (1, 'a'), (2, x'00ff'), (3, NULL), (4, 1.0), (5, -0.0)
         UPDATE t SET v = 9 WHERE id = 1
         UPDATE t SET id = 44 WHERE id = 2
         DELETE FROM t WHERE id = 3
         CREATE TABLE u(a, b)
         INSERT INTO u VALUES (1, 2), (1, 2), (1, 2)
         UPDATE u SET rowid = rowid + 100 WHERE rowid = 2
         DELETE FROM u WHERE rowid = 1
         UPDATE t SET v = 1 WHERE 0
         DELETE FROM t",
    );
}

#[test]
fn upserts_and_replace() {
    replicates(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, e UNIQUE, v)
         INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')
         INSERT INTO t VALUES (1, 11, 'x') ON CONFLICT(id) DO UPDATE SET v = excluded.v
         INSERT INTO t VALUES (9, 20, 'x') ON CONFLICT(e) DO UPDATE SET v = t.v || '!'
         INSERT INTO t VALUES (9, 20, 'x') ON CONFLICT DO NOTHING
         REPLACE INTO t VALUES (1, 20, 'both')
         INSERT OR REPLACE INTO t(e, v) VALUES (30, 'new id')
         INSERT OR IGNORE INTO t VALUES (1, 1, 1), (50, 50, 50)
         !INSERT OR FAIL INTO t VALUES (60, 60, 60), (50, 0, 0)
         !INSERT OR ABORT INTO t VALUES (70, 70, 70), (50, 0, 0)
         !INSERT OR ROLLBACK INTO t VALUES (70, 70, 70), (50, 0, 0)",
    );
}
