//! Schema statements are replayed at their place among the rows.

use crate::{Bench, replicates};

#[test]
fn every_form_of_alter() {
    replicates(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)
         INSERT INTO t VALUES (1, 'a', 'b'), (2, 'c', 'd')
         ALTER TABLE t ADD COLUMN c
         ALTER TABLE t ADD COLUMN d TEXT DEFAULT 'd' NOT NULL
         ALTER TABLE t ADD e DEFAULT -1.5
         INSERT INTO t(a) VALUES ('new')
         ALTER TABLE t RENAME COLUMN a TO \"A a\"
         UPDATE t SET \"A a\" = 'changed' WHERE id = 1
         ALTER TABLE t DROP COLUMN b
         INSERT INTO t(\"A a\", c) VALUES ('x', 'y')
         ALTER TABLE t RENAME TO \"T t\"
         DELETE FROM \"T t\" WHERE id = 2
         !ALTER TABLE \"T t\" RENAME TO \"t T\"
         ALTER TABLE \"T t\" RENAME TO \"u U\"
         INSERT INTO \"U u\"(\"A a\") VALUES ('last')",
    );
}

#[test]
fn a_table_renamed_and_made_anew_in_one_batch() {
    let mut bench = Bench::with(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v)
         INSERT INTO t VALUES (5, 'old'), (6, 'stays')",
    );
    bench.run(
        "UPDATE t SET v = 'touched' WHERE id = 5
         ALTER TABLE t RENAME TO u
         CREATE TABLE t(id INTEGER PRIMARY KEY, w, x)
         INSERT INTO t VALUES (5, 'new', 'table')",
    );
    bench.equal();
}

#[test]
fn names_swap_and_rotate_with_rows_touched_on_the_way() {
    let mut bench = Bench::with(
        "CREATE TABLE a(id INTEGER PRIMARY KEY, v)
         CREATE TABLE b(id INTEGER PRIMARY KEY, v)
         INSERT INTO a VALUES (1, 'a1'), (2, 'a2'), (3, 'a3')
         INSERT INTO b VALUES (1, 'b1'), (2, 'b2'), (3, 'b3')",
    );
    bench.run(
        "UPDATE a SET v = 'a1 touched' WHERE id = 1
         DELETE FROM b WHERE id = 2
         ALTER TABLE a RENAME TO c
         INSERT INTO c VALUES (4, 'a4')
         ALTER TABLE b RENAME TO a
         UPDATE a SET v = 'b3 touched' WHERE id = 3
         ALTER TABLE c RENAME TO b
         DELETE FROM b WHERE id = 2
         ALTER TABLE A RENAME TO tmp
         ALTER TABLE tmp RENAME TO A
         INSERT INTO A VALUES (9, 'b9')",
    );
    bench.equal();
}

#[test]
fn a_table_dropped_and_made_anew_in_one_batch() {
    let mut bench = Bench::with(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v)
         CREATE INDEX i ON t(v)
         INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    );
    bench.run(
        "INSERT INTO t VALUES (3, 'c')
         DROP TABLE t
         CREATE TABLE t(v, w, UNIQUE(v))
         INSERT INTO t VALUES ('x', 'y')
         DROP TABLE t
         CREATE TABLE T(only)
         INSERT INTO t VALUES ('z')",
    );
    bench.equal();
}

#[test]
fn what_came_and_went_within_a_batch_leaves_no_trace() {
    let mut bench = Bench::new();
    bench.run(
        "CREATE TABLE t(a)
         INSERT INTO t VALUES (1)
         ALTER TABLE t RENAME TO u
         INSERT INTO u VALUES (2)
         DROP TABLE u",
    );
    bench.equal();
}

#[test]
fn a_table_rebuilt_as_migration_tools_do_it() {
    replicates(
        "CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT)
         CREATE INDEX by_name ON users(name)
         CREATE TABLE posts(id INTEGER PRIMARY KEY, author REFERENCES users(id))
         INSERT INTO users VALUES (1, 'ann'), (2, 'bob')
         INSERT INTO posts VALUES (1, 1)
         BEGIN
         CREATE TABLE users_new(id INTEGER PRIMARY KEY, name TEXT NOT NULL, age INT DEFAULT 0)
         INSERT INTO users_new(id, name) SELECT id, name FROM users
         DROP TABLE posts
         DROP TABLE users
         ALTER TABLE users_new RENAME TO users
         CREATE INDEX by_name ON users(name)
         COMMIT
         INSERT INTO users VALUES (3, 'cyd', 9)",
    );
}

#[test]
fn indexes_of_every_kind() {
    replicates(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b, c COLLATE NOCASE)
         INSERT INTO t VALUES (1, 'x', 1, 'Q'), (2, 'y', 2, 'r'), (3, 'z', NULL, 's')
         CREATE INDEX plain ON t(a, b DESC)
         CREATE UNIQUE INDEX partial ON t(b) WHERE b IS NOT NULL
         CREATE INDEX expression ON t(lower(a) || b)
         CREATE UNIQUE INDEX collated ON t(c COLLATE NOCASE)
         !INSERT INTO t VALUES (4, 'w', 4, 'q')
         INSERT INTO t VALUES (4, 'w', NULL, 'v')
         BEGIN
         UPDATE t SET b = 20 WHERE id = 1
         UPDATE t SET b = 1 WHERE id = 2
         UPDATE t SET b = 2 WHERE id = 1
         COMMIT
         DROP INDEX partial
         UPDATE t SET b = 7",
    );
}

#[test]
fn a_unique_index_made_after_its_rows_became_unique() {
    let mut bench = Bench::with(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v)
         INSERT INTO t VALUES (1, 'same'), (2, 'same'), (3, 'other')",
    );
    bench.run(
        "UPDATE t SET v = 'changed' WHERE id = 2
         CREATE UNIQUE INDEX u ON t(v)
         UPDATE t SET v = 'later' WHERE id = 1
         INSERT INTO t VALUES (4, 'same')",
    );
    bench.equal();
}

#[test]
fn views_follow_renames() {
    replicates(
        "CREATE TABLE t(a, b)
         CREATE VIEW v AS SELECT a, b FROM t WHERE a > 1
         CREATE VIEW IF NOT EXISTS v AS SELECT 1
         INSERT INTO t VALUES (1, 2), (2, 3)
         ALTER TABLE t RENAME COLUMN a TO c
         DROP VIEW v
         CREATE VIEW w(x) AS SELECT c FROM t",
    );
}

#[test]
fn create_table_as_ships_its_rows() {
    replicates(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b REAL)
         INSERT INTO t VALUES (1, 'x', 1.5), (7, 'y', NULL), (9, x'01', -0.0)
         CREATE TABLE c1 AS SELECT * FROM t
         CREATE TABLE IF NOT EXISTS c1 AS SELECT 1
         CREATE TABLE c2 AS SELECT a AS \"A a\", count(*) FROM t GROUP BY a
         CREATE TABLE c3 AS WITH w AS (SELECT b FROM t) SELECT * FROM w ORDER BY b LIMIT 2
         CREATE TABLE c4 AS SELECT 1 UNION ALL SELECT 2
         CREATE TABLE c5 AS VALUES (1, 'as'), (2, NULL)
         !CREATE TABLE c1 AS SELECT 2
         INSERT INTO c2 VALUES ('more', 1)",
    );
}

#[test]
fn a_new_column_and_a_full_scan_of_defaults() {
    let mut bench = Bench::with(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a)
         INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
    );
    bench.run(
        "ALTER TABLE t ADD COLUMN b DEFAULT 'untouched rows have it too'
         UPDATE t SET b = 'own' WHERE id = 2
         ALTER TABLE t ADD COLUMN c INTEGER NOT NULL DEFAULT 5 CHECK (c > 0)
         !UPDATE t SET c = -1",
    );
    bench.equal();
}
