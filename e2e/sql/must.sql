-- Statement forms that must be captured and arrive equal.
--
-- The conformance suite (e2e/tests/conformance.rs) runs every form through the real write
-- path, ships the log to a second database and compares. The format:
--
--   -- # Title          starts a section. Sections use names of their own, because they also
--                       run one after the other in a single database.
--   -- ## name          starts a form: one or more statements. Its name goes to docs/sql.md.
--   -- setup            starts statements that prepare a section and are not counted.
--   -- expect: error CODE        the next statement fails with this code
--   -- expect: gone CODE         the next statement fails and ends its transaction
--   -- only: autocommit          not run a second time inside an interactive transaction
--   -- large            the section is run once on its own, and cumulatively
--   {1..N: text}        becomes N copies of the text joined by commas, # being the number
--                       and @ the one before it; {N*text} becomes N copies without commas
--
-- A form that begins a transaction of its own runs as it is written.

-- # Inserts

-- setup
CREATE TABLE ins(id INTEGER PRIMARY KEY, a TEXT, b REAL DEFAULT 1.5, c BLOB);
CREATE TABLE ins_plain(x, y);

-- ## INSERT with all columns
INSERT INTO ins VALUES (1, 'one', 1.0, x'01');

-- ## INSERT with some columns
INSERT INTO ins(a) VALUES ('two');

-- ## INSERT of several rows
INSERT INTO ins(a, b) VALUES ('three', 3), ('four', 4.5), (NULL, NULL);

-- ## INSERT DEFAULT VALUES
INSERT INTO ins DEFAULT VALUES;

-- ## INSERT with an explicit row id
INSERT INTO ins_plain(rowid, x) VALUES (77, 'here');

-- ## INSERT with a negative row id
INSERT INTO ins_plain(rowid, x) VALUES (-5, 'below');

-- ## INSERT with row id 0
INSERT INTO ins_plain(_rowid_, x) VALUES (0, 'zero');

-- ## INSERT with the largest row id, and one after it
INSERT INTO ins_plain(oid, x) VALUES (9223372036854775807, 'last');
INSERT INTO ins_plain(x) VALUES ('chosen at random');

-- ## INSERT … SELECT from another table
INSERT INTO ins_plain SELECT a, b FROM ins;

-- ## INSERT … SELECT from the same table
INSERT INTO ins_plain SELECT x, y FROM ins_plain WHERE rowid < 3;

-- ## INSERT … SELECT with ORDER BY and LIMIT
INSERT INTO ins_plain SELECT a, b FROM ins ORDER BY b DESC LIMIT 2;

-- ## INSERT … SELECT of a compound
INSERT INTO ins_plain SELECT 1, 2 UNION ALL SELECT 3, 4 UNION SELECT 5, 6;

-- ## INSERT of a NULL key, which is chosen
INSERT INTO ins(id, a) VALUES (NULL, 'chosen');

-- ## INSERT with expressions and subqueries as values
INSERT INTO ins(a, b) VALUES ('x' || 1 + 1, (SELECT max(b) FROM ins)), (upper('u'), abs(-3));

-- ## INSERT of a random number and the time: shipped, not evaluated again
INSERT INTO ins_plain VALUES (random(), randomblob(16)), (datetime('now'), julianday('now'));

-- ## INSERT OR ABORT that succeeds
INSERT OR ABORT INTO ins(id, a) VALUES (100, 'hundred');

-- ## INSERT OR IGNORE of a new row and of one that exists
INSERT OR IGNORE INTO ins(id, a) VALUES (101, 'new');
INSERT OR IGNORE INTO ins(id, a) VALUES (101, 'ignored');

-- ## INSERT OR FAIL that succeeds
INSERT OR FAIL INTO ins(id, a) VALUES (102, 'new');

-- ## INSERT OR ROLLBACK that succeeds
INSERT OR ROLLBACK INTO ins(id, a) VALUES (103, 'new');

-- ## INSERT that violates the key
-- expect: error SQLITE_CONSTRAINT_UNIQUE
INSERT INTO ins(id, a) VALUES (100, 'again');

-- ## INSERT of several rows, the last of which fails: none stays
-- expect: error SQLITE_CONSTRAINT_UNIQUE
INSERT INTO ins(id, a) VALUES (200, 'a'), (201, 'b'), (100, 'again');

-- ## INSERT OR FAIL that fails half-way: the first rows stay
-- expect: error SQLITE_CONSTRAINT_UNIQUE
INSERT OR FAIL INTO ins(id, a) VALUES (210, 'a'), (211, 'b'), (100, 'again'), (212, 'c');

-- # Updates

-- setup
CREATE TABLE upd(id INTEGER PRIMARY KEY, a, b, u UNIQUE);
INSERT INTO upd VALUES (1, 'a', 1, 'u1'), (2, 'b', 2, 'u2'), (3, 'c', 3, 'u3'), (4, 'd', 4, NULL);
CREATE TABLE upd_src(id INTEGER PRIMARY KEY, v);
INSERT INTO upd_src VALUES (1, 'from 1'), (3, 'from 3'), (9, 'from 9');
CREATE TABLE UpdCapital(id INTEGER PRIMARY KEY, a);
INSERT INTO UpdCapital VALUES (1, 'one'), (2, 'two'), (3, 'three');

-- ## UPDATE by key
UPDATE upd SET a = 'A' WHERE id = 1;

-- ## UPDATE of several columns
UPDATE upd SET a = 'B', b = b * 2 WHERE id = 2;

-- ## UPDATE of a row value
UPDATE upd SET (a, b) = ('pair', 99) WHERE id = 3;

-- ## UPDATE of a row value from a subquery
UPDATE upd SET (a, b) = (SELECT v, 5 FROM upd_src WHERE upd_src.id = 1) WHERE id = 4;

-- ## UPDATE of every row
UPDATE upd SET b = b + 1;

-- ## UPDATE to the same value
UPDATE upd SET a = a;

-- ## UPDATE that matches nothing
UPDATE upd SET a = 'never' WHERE id = 12345;

-- ## UPDATE WHERE 0
UPDATE upd SET a = 'never' WHERE 0;

-- ## UPDATE … IN ()
UPDATE upd SET a = 'never' WHERE id IN ();

-- ## UPDATE with a subquery in WHERE
UPDATE upd SET a = 'in src' WHERE id IN (SELECT id FROM upd_src);

-- ## UPDATE with a correlated subquery
UPDATE upd SET a = (SELECT v FROM upd_src WHERE upd_src.id = upd.id) WHERE EXISTS (SELECT 1 FROM upd_src WHERE upd_src.id = upd.id);

-- ## UPDATE and DELETE of a table with capitals in its name, named in lower case
UPDATE updcapital SET a = (SELECT v FROM upd_src WHERE upd_src.id = UpdCapital.id);
DELETE FROM updcapital WHERE EXISTS (SELECT 1 FROM upd_src WHERE upd_src.id = UPDCAPITAL.id);

-- ## UPDATE … FROM
UPDATE upd SET a = upd_src.v || '!' FROM upd_src WHERE upd_src.id = upd.id;

-- ## UPDATE … FROM a subquery
UPDATE upd SET b = s.n FROM (SELECT id, length(v) AS n FROM upd_src) AS s WHERE s.id = upd.id;

-- ## UPDATE with an alias
UPDATE upd AS u SET a = 'alias' WHERE u.id = 2;

-- ## UPDATE of the integer key
UPDATE upd SET id = 44 WHERE id = 4;

-- ## UPDATE of every key
UPDATE upd SET id = id + 1000;

-- ## UPDATE of a key to where another row was
UPDATE upd SET id = 7 WHERE id = 1001;
UPDATE upd SET id = 1001 WHERE id = 1002;

-- ## UPDATE of rowid in a table without a key column
CREATE TABLE upd_plain(x);
INSERT INTO upd_plain VALUES (1), (2);
UPDATE upd_plain SET rowid = rowid + 10;

-- ## UPDATE to NULL
UPDATE upd SET a = NULL WHERE id = 7;

-- ## UPDATE that changes a value's storage class
UPDATE upd SET a = 12.5 WHERE id = 7;
UPDATE upd SET a = x'beef' WHERE id = 7;

-- ## UPDATE OR IGNORE with a conflict
UPDATE OR IGNORE upd SET u = 'u2' WHERE u = 'u1';

-- ## UPDATE OR ABORT with a conflict
-- expect: error SQLITE_CONSTRAINT_UNIQUE
UPDATE OR ABORT upd SET u = 'u2' WHERE u = 'u1';

-- ## UPDATE OR FAIL with a conflict
-- expect: error SQLITE_CONSTRAINT_UNIQUE
UPDATE OR FAIL upd SET u = 'u2' WHERE u IN ('u1', 'u3');

-- ## UPDATE that violates UNIQUE half-way
-- expect: error SQLITE_CONSTRAINT_UNIQUE
UPDATE upd SET u = 'same';

-- ## UPDATE of an indexed column
CREATE INDEX upd_a ON upd(a);
UPDATE upd SET a = 'indexed ' || id;

-- ## UPDATE INDEXED BY and NOT INDEXED
UPDATE upd INDEXED BY upd_a SET b = -1 WHERE a = 'indexed 7';
UPDATE upd NOT INDEXED SET b = -2 WHERE a = 'indexed 7';

-- # Deletes

-- setup
CREATE TABLE del(id INTEGER PRIMARY KEY, g, v);
INSERT INTO del VALUES (1, 'a', 1), (2, 'a', 2), (3, 'b', 3), (4, 'b', 4), (5, 'c', 5), (6, 'c', 6), (7, 'd', 7), (8, 'd', 8);
CREATE TABLE del_src(id);
INSERT INTO del_src VALUES (3), (4);

-- ## DELETE by key
DELETE FROM del WHERE id = 1;

-- ## DELETE by a condition
DELETE FROM del WHERE g = 'a' AND v > 1;

-- ## DELETE with a subquery
DELETE FROM del WHERE id IN (SELECT id FROM del_src);

-- ## DELETE that matches nothing
DELETE FROM del WHERE id = 999;

-- ## DELETE WHERE 0
DELETE FROM del WHERE 0;

-- ## DELETE with EXISTS
DELETE FROM del WHERE EXISTS (SELECT 1 FROM del AS d WHERE d.g = del.g AND d.id > del.id);

-- ## DELETE and INSERT of the same key
DELETE FROM del WHERE id = 6;
INSERT INTO del VALUES (6, 'again', 66);

-- ## DELETE of every row
DELETE FROM del;

-- ## INSERT after all rows were deleted: row ids start again
INSERT INTO del(g) VALUES ('first');

-- ## DELETE of the last row, whose row id is used again
CREATE TABLE del_plain(x);
INSERT INTO del_plain VALUES (1), (2), (3);
DELETE FROM del_plain WHERE rowid = 3;
INSERT INTO del_plain VALUES ('reused');

-- # RETURNING

-- setup
CREATE TABLE ret(id INTEGER PRIMARY KEY, v);

-- ## INSERT … RETURNING *
INSERT INTO ret(v) VALUES (1), (2), (3) RETURNING *;

-- ## INSERT … RETURNING an expression
INSERT INTO ret(v) VALUES (4) RETURNING id * 10 AS ten, v || 'x';

-- ## UPDATE … RETURNING
UPDATE ret SET v = v + 1 RETURNING id, v;

-- ## UPDATE of the key … RETURNING
UPDATE ret SET id = id + 100 WHERE id = 1 RETURNING id;

-- ## DELETE … RETURNING
DELETE FROM ret WHERE v > 3 RETURNING id, v;

-- ## upsert … RETURNING
INSERT INTO ret VALUES (101, 'again') ON CONFLICT(id) DO UPDATE SET v = excluded.v RETURNING *;

-- ## REPLACE … RETURNING
REPLACE INTO ret VALUES (101, 'replaced') RETURNING v;

-- ## RETURNING from a statement that changes nothing
DELETE FROM ret WHERE id = -1 RETURNING id;

-- # Upserts and REPLACE

-- setup
CREATE TABLE ups(id INTEGER PRIMARY KEY, k TEXT UNIQUE, n INTEGER DEFAULT 0, UNIQUE(k, n));
INSERT INTO ups VALUES (1, 'a', 0), (2, 'b', 0), (3, 'c', 0);

-- ## ON CONFLICT(key) DO NOTHING
INSERT INTO ups VALUES (1, 'x', 1) ON CONFLICT(id) DO NOTHING;

-- ## ON CONFLICT DO NOTHING without a target
INSERT INTO ups VALUES (9, 'a', 1) ON CONFLICT DO NOTHING;

-- ## ON CONFLICT(key) DO UPDATE
INSERT INTO ups VALUES (1, 'x', 1) ON CONFLICT(id) DO UPDATE SET n = n + 1;

-- ## ON CONFLICT(unique) DO UPDATE with excluded
INSERT INTO ups(k, n) VALUES ('b', 50) ON CONFLICT(k) DO UPDATE SET n = excluded.n + ups.n;

-- ## DO UPDATE with WHERE that holds, and one that does not
INSERT INTO ups(k, n) VALUES ('b', 1) ON CONFLICT(k) DO UPDATE SET n = 0 WHERE ups.n > 10;
INSERT INTO ups(k, n) VALUES ('b', 1) ON CONFLICT(k) DO UPDATE SET n = 77 WHERE ups.n > 10;

-- ## DO UPDATE that changes the row's key
INSERT INTO ups(id, k) VALUES (3, 'c') ON CONFLICT(id) DO UPDATE SET id = 33;

-- ## DO UPDATE that changes the row's unique value
INSERT INTO ups(k, n) VALUES ('c', 1) ON CONFLICT(k) DO UPDATE SET k = 'cc';

-- ## several ON CONFLICT clauses
INSERT INTO ups VALUES (1, 'new', 5) ON CONFLICT(id) DO UPDATE SET n = 500 ON CONFLICT(k) DO UPDATE SET n = 600;

-- ## several rows, some inserted and some updated
INSERT INTO ups(k, n) VALUES ('a', 1), ('z', 26), ('a', 2), ('y', 25) ON CONFLICT(k) DO UPDATE SET n = n + excluded.n;

-- ## upsert from SELECT
INSERT INTO ups(k, n) SELECT k, 1000 FROM ups WHERE true ON CONFLICT(k) DO UPDATE SET n = ups.n + 1;

-- ## upsert on a unique index of several columns
CREATE TABLE ups_pair(a, b, n DEFAULT 1, PRIMARY KEY(a, b));
INSERT INTO ups_pair(a, b) VALUES (1, 1), (1, 2);
INSERT INTO ups_pair(a, b) VALUES (1, 2) ON CONFLICT(a, b) DO UPDATE SET n = n + 1;

-- ## upsert that itself violates another constraint
-- expect: error SQLITE_CONSTRAINT_UNIQUE
INSERT INTO ups(id, k) VALUES (1, 'q') ON CONFLICT(id) DO UPDATE SET k = 'z';

-- ## REPLACE of an existing row by key
REPLACE INTO ups VALUES (1, 'a', 11);

-- ## REPLACE of a new row
REPLACE INTO ups(k, n) VALUES ('fresh', 1);

-- ## INSERT OR REPLACE that evicts by a unique value
INSERT OR REPLACE INTO ups(id, k, n) VALUES (200, 'a', 12);

-- ## INSERT OR REPLACE that evicts several rows
INSERT OR REPLACE INTO ups(id, k, n) VALUES (200, 'z', 12);

-- ## REPLACE of several rows, one evicting another of the same statement
REPLACE INTO ups(id, k, n) VALUES (300, 'p', 1), (301, 'p', 2), (301, 'o', 3);

-- ## REPLACE INTO … SELECT
REPLACE INTO ups(id, k, n) SELECT id, k, n + 1 FROM ups WHERE n < 20;

-- ## INSERT OR REPLACE in a table without an integer key
CREATE TABLE ups_text(k TEXT PRIMARY KEY, v);
INSERT INTO ups_text VALUES ('a', 1), ('b', 2);
INSERT OR REPLACE INTO ups_text VALUES ('a', 3);

-- ## INSERT OR REPLACE together with DO UPDATE
CREATE TABLE ups_both(id INTEGER PRIMARY KEY, a UNIQUE, b UNIQUE);
INSERT INTO ups_both VALUES (1, 'a', 'a'), (2, 'b', 'b'), (3, 'c', 'c');
INSERT OR REPLACE INTO ups_both VALUES (1, 'x', 'y') ON CONFLICT(id) DO UPDATE SET a = 'z';
-- expect: error SQLITE_CONSTRAINT_UNIQUE
INSERT OR REPLACE INTO ups_both VALUES (9, 'b', 'c') ON CONFLICT(id) DO UPDATE SET a = 'z';
-- expect: error SQLITE_CONSTRAINT_UNIQUE
INSERT OR REPLACE INTO ups_both VALUES (1, 'q', 'q') ON CONFLICT(id) DO UPDATE SET a = 'b';

-- ## a DO UPDATE in a trigger fired by REPLACE
CREATE TABLE ups_from(id INTEGER PRIMARY KEY);
CREATE TRIGGER ups_from_ai AFTER INSERT ON ups_from BEGIN
  INSERT INTO ups_both VALUES (1, 'n', 'n') ON CONFLICT(id) DO UPDATE SET a = 'from ' || new.id;
END;
REPLACE INTO ups_from VALUES (1);
REPLACE INTO ups_from VALUES (1);

-- ## NOT NULL ON CONFLICT REPLACE with a default
CREATE TABLE ups_nn(id INTEGER PRIMARY KEY, v NOT NULL ON CONFLICT REPLACE DEFAULT 'none');
INSERT INTO ups_nn(v) VALUES (NULL), ('some');

-- ## UNIQUE ON CONFLICT IGNORE
CREATE TABLE ups_ig(id INTEGER PRIMARY KEY, v UNIQUE ON CONFLICT IGNORE);
INSERT INTO ups_ig(v) VALUES (1), (1), (2);

-- # Value swaps and key changes

-- setup
CREATE TABLE swp(id INTEGER PRIMARY KEY, u UNIQUE, v);
INSERT INTO swp VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3);

-- ## swap of two unique values by way of NULL
BEGIN;
UPDATE swp SET u = NULL WHERE id = 1;
UPDATE swp SET u = 'a' WHERE id = 2;
UPDATE swp SET u = 'b' WHERE id = 1;
COMMIT;

-- ## rotation of three unique values
BEGIN IMMEDIATE;
UPDATE swp SET u = 'tmp' WHERE u = 'a';
UPDATE swp SET u = 'a' WHERE u = 'b';
UPDATE swp SET u = 'b' WHERE u = 'c';
UPDATE swp SET u = 'c' WHERE u = 'tmp';
COMMIT;

-- ## swap of two keys
BEGIN;
UPDATE swp SET id = -1 WHERE id = 1;
UPDATE swp SET id = 1 WHERE id = 2;
UPDATE swp SET id = 2 WHERE id = -1;
COMMIT;

-- ## a row moves to another key and back
UPDATE swp SET id = 50 WHERE id = 3;
UPDATE swp SET id = 3 WHERE id = 50;

-- ## a value moves from one row to another through DELETE
DELETE FROM swp WHERE u = 'a';
UPDATE swp SET u = 'a' WHERE id = 3;

-- ## unique values shifted by one
CREATE TABLE swp_n(id INTEGER PRIMARY KEY, n UNIQUE);
INSERT INTO swp_n VALUES (1, 10), (2, 20), (3, 30);
UPDATE swp_n SET n = n + 10 WHERE id = 3;
UPDATE swp_n SET n = n + 10 WHERE id = 2;
UPDATE swp_n SET n = n + 10 WHERE id = 1;

-- ## a text key changes
CREATE TABLE swp_t(k TEXT PRIMARY KEY, v);
INSERT INTO swp_t VALUES ('x', 1), ('y', 2);
UPDATE swp_t SET k = 'z' WHERE k = 'x';

-- # Transactions

-- setup
CREATE TABLE txn(id INTEGER PRIMARY KEY, v UNIQUE);

-- ## BEGIN … COMMIT
BEGIN;
INSERT INTO txn VALUES (1, 'a');
INSERT INTO txn VALUES (2, 'b');
COMMIT;

-- ## BEGIN DEFERRED … END
BEGIN DEFERRED TRANSACTION;
INSERT INTO txn VALUES (3, 'c');
END TRANSACTION;

-- ## BEGIN IMMEDIATE
BEGIN IMMEDIATE;
UPDATE txn SET v = v || '1';
COMMIT TRANSACTION;

-- ## BEGIN EXCLUSIVE
BEGIN EXCLUSIVE;
DELETE FROM txn WHERE id = 3;
COMMIT;

-- ## BEGIN CONCURRENT
BEGIN CONCURRENT;
INSERT INTO txn VALUES (5, 'e');
COMMIT;

-- ## BEGIN READONLY
BEGIN READONLY;
SELECT count(*) FROM txn;
COMMIT;

-- ## ROLLBACK
BEGIN;
INSERT INTO txn VALUES (6, 'never');
DELETE FROM txn;
ROLLBACK;

-- ## a transaction that reads before it writes
BEGIN;
SELECT count(*) FROM txn;
INSERT INTO txn VALUES (7, 'g');
COMMIT;

-- ## an empty transaction
BEGIN;
COMMIT;

-- ## a transaction of reads
BEGIN;
SELECT * FROM txn;
SELECT max(id) FROM txn;
COMMIT;

-- ## a failed statement inside a transaction that goes on
BEGIN;
INSERT INTO txn VALUES (8, 'h');
-- expect: error SQLITE_CONSTRAINT_UNIQUE
INSERT INTO txn VALUES (9, 'h');
INSERT INTO txn VALUES (10, 'j');
COMMIT;

-- ## INSERT OR FAIL inside a transaction keeps its first rows
BEGIN;
-- expect: error SQLITE_CONSTRAINT_UNIQUE
INSERT OR FAIL INTO txn VALUES (11, 'k'), (12, 'k');
COMMIT;

-- ## a row that comes and goes within a transaction
BEGIN;
INSERT INTO txn VALUES (60, 'short');
UPDATE txn SET v = 'life' WHERE id = 60;
DELETE FROM txn WHERE id = 60;
COMMIT;

-- ## a row that goes and comes back within a transaction
BEGIN;
DELETE FROM txn WHERE id = 1;
INSERT INTO txn VALUES (1, 'back');
COMMIT;

-- ## a syntax error inside a transaction that goes on
BEGIN;
INSERT INTO txn VALUES (61, 'kept');
-- expect: error SQLITE_ERROR
INSERT INTO no_such_table VALUES (1);
INSERT INTO txn VALUES (62, 'kept too');
COMMIT;

-- # Savepoints

-- setup
CREATE TABLE sav(id INTEGER PRIMARY KEY, v);

-- ## SAVEPOINT … RELEASE inside a transaction
BEGIN;
INSERT INTO sav VALUES (1, 'a');
SAVEPOINT s;
INSERT INTO sav VALUES (2, 'b');
RELEASE s;
COMMIT;

-- ## ROLLBACK TO
BEGIN;
INSERT INTO sav VALUES (3, 'c');
SAVEPOINT s;
INSERT INTO sav VALUES (4, 'never');
UPDATE sav SET v = 'never';
ROLLBACK TO s;
INSERT INTO sav VALUES (5, 'e');
RELEASE SAVEPOINT s;
COMMIT;

-- ## nested savepoints
BEGIN;
SAVEPOINT a;
INSERT INTO sav VALUES (6, 'a');
SAVEPOINT b;
INSERT INTO sav VALUES (7, 'b');
SAVEPOINT c;
INSERT INTO sav VALUES (8, 'never');
ROLLBACK TRANSACTION TO SAVEPOINT c;
RELEASE b;
INSERT INTO sav VALUES (9, 'after b');
RELEASE a;
COMMIT;

-- ## RELEASE of an outer savepoint ends the inner ones
BEGIN;
SAVEPOINT outer_one;
INSERT INTO sav VALUES (10, 'o');
SAVEPOINT inner_one;
INSERT INTO sav VALUES (11, 'i');
RELEASE outer_one;
COMMIT;

-- ## the same savepoint name twice
BEGIN;
SAVEPOINT s;
INSERT INTO sav VALUES (12, 'first');
SAVEPOINT s;
INSERT INTO sav VALUES (13, 'never');
ROLLBACK TO s;
RELEASE s;
INSERT INTO sav VALUES (14, 'kept');
RELEASE s;
COMMIT;

-- ## everything rolled back to a savepoint, then COMMIT
BEGIN;
SAVEPOINT s;
INSERT INTO sav VALUES (15, 'never');
ROLLBACK TO s;
COMMIT;

-- ## SAVEPOINT outside a transaction
SAVEPOINT s;
INSERT INTO sav VALUES (16, 'in a savepoint only');
RELEASE s;

-- ## SAVEPOINT outside a transaction, rolled back and released
SAVEPOINT s;
INSERT INTO sav VALUES (17, 'never');
ROLLBACK TO s;
INSERT INTO sav VALUES (18, 'kept');
RELEASE s;

-- ## schema change rolled back to a savepoint
BEGIN;
SAVEPOINT s;
CREATE TABLE sav_never(x);
INSERT INTO sav_never VALUES (1);
ALTER TABLE sav ADD COLUMN never;
ROLLBACK TO s;
INSERT INTO sav VALUES (19, 'no column');
RELEASE s;
COMMIT;

-- # Errors that end a transaction

-- setup
CREATE TABLE gon(id INTEGER PRIMARY KEY, v UNIQUE);
INSERT INTO gon VALUES (1, 'a');

-- ## INSERT OR ROLLBACK with a conflict
BEGIN;
INSERT INTO gon VALUES (2, 'never');
-- expect: gone SQLITE_CONSTRAINT_UNIQUE
INSERT OR ROLLBACK INTO gon VALUES (3, 'a');

-- ## INSERT OR ROLLBACK with a conflict, alone
-- only: autocommit
-- expect: error SQLITE_CONSTRAINT_UNIQUE
INSERT OR ROLLBACK INTO gon VALUES (3, 'a');

-- ## bad JSON in an INSERT
-- only: autocommit
-- expect: error SQLITE_ERROR
INSERT INTO gon(v) VALUES (json('{bad'));

-- ## bad JSON after an INSERT of the same transaction
BEGIN;
INSERT INTO gon VALUES (4, 'never');
-- expect: gone SQLITE_ERROR
SELECT json('{bad');

-- ## integer overflow in abs
BEGIN;
INSERT INTO gon VALUES (5, 'never');
-- expect: gone SQLITE_ERROR
SELECT abs(-9223372036854775808);

-- ## integer overflow in sum
-- only: autocommit
-- expect: error SQLITE_ERROR
INSERT INTO gon(v) SELECT sum(x) FROM (SELECT 9223372036854775807 AS x UNION ALL SELECT 1);

-- ## RAISE(ROLLBACK) in a trigger
CREATE TABLE gon_t(x);
CREATE TRIGGER gon_raise BEFORE INSERT ON gon_t WHEN new.x = 'rollback' BEGIN SELECT RAISE(ROLLBACK, 'no'); END;
BEGIN;
INSERT INTO gon_t VALUES ('never');
-- expect: gone SQLITE_CONSTRAINT_TRIGGER
INSERT INTO gon_t VALUES ('rollback');

-- ## a write after all of them
INSERT INTO gon VALUES (10, 'alive');

-- # Constraints

-- setup
CREATE TABLE con(id INTEGER PRIMARY KEY, nn NOT NULL, ck INTEGER CHECK (ck > 0), un UNIQUE, CHECK (nn <> 'forbidden'));
INSERT INTO con VALUES (1, 'x', 1, 1);

-- ## NOT NULL refused
-- expect: error SQLITE_CONSTRAINT_NOTNULL
INSERT INTO con(id, ck) VALUES (2, 1);

-- ## CHECK of a column refused
-- expect: error SQLITE_CONSTRAINT_CHECK
INSERT INTO con VALUES (2, 'x', 0, 2);

-- ## CHECK of a table refused
-- expect: error SQLITE_CONSTRAINT_CHECK
INSERT INTO con VALUES (2, 'forbidden', 1, 2);

-- ## UNIQUE refused
-- expect: error SQLITE_CONSTRAINT_UNIQUE
INSERT INTO con VALUES (2, 'x', 1, 1);

-- ## OR IGNORE of each kind
INSERT OR IGNORE INTO con VALUES (2, NULL, 1, 2);
INSERT OR IGNORE INTO con VALUES (3, 'x', -1, 3);
INSERT OR IGNORE INTO con VALUES (4, 'x', 1, 1);

-- ## NULL passes CHECK and UNIQUE
INSERT INTO con VALUES (5, 'x', NULL, NULL), (6, 'x', NULL, NULL);

-- ## named constraints
CREATE TABLE con_named(a CONSTRAINT a_is_key PRIMARY KEY, b CONSTRAINT b_there NOT NULL, CONSTRAINT ab UNIQUE (a, b), CONSTRAINT pos CHECK (b > 0));
INSERT INTO con_named VALUES (1, 1);

-- ## UNIQUE over several columns with NULLs
CREATE TABLE con_pair(a, b, UNIQUE(a, b));
INSERT INTO con_pair VALUES (1, NULL), (1, NULL), (1, 1), (NULL, NULL);

-- ## defaults of every kind
CREATE TABLE con_def(id INTEGER PRIMARY KEY, i DEFAULT -5, r DEFAULT 2.5, t DEFAULT 'it''s', b DEFAULT x'00ff', n DEFAULT NULL, e DEFAULT (1 + 2 * 3), ts DEFAULT CURRENT_TIMESTAMP, d DEFAULT CURRENT_DATE, tm DEFAULT CURRENT_TIME, f DEFAULT (lower('X') || 'y'));
INSERT INTO con_def(id) VALUES (1), (2);

-- # Foreign keys

-- setup
CREATE TABLE fk_p(id INTEGER PRIMARY KEY, k UNIQUE);
CREATE TABLE fk_cascade(id INTEGER PRIMARY KEY, p REFERENCES fk_p(id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE fk_null(id INTEGER PRIMARY KEY, p REFERENCES fk_p(id) ON DELETE SET NULL ON UPDATE SET NULL);
CREATE TABLE fk_default(id INTEGER PRIMARY KEY, p DEFAULT 1 REFERENCES fk_p(id) ON DELETE SET DEFAULT ON UPDATE SET DEFAULT);
CREATE TABLE fk_restrict(id INTEGER PRIMARY KEY, p REFERENCES fk_p(id) ON DELETE RESTRICT ON UPDATE RESTRICT);
CREATE TABLE fk_none(id INTEGER PRIMARY KEY, p REFERENCES fk_p(id));
INSERT INTO fk_p VALUES (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four'), (5, 'five'), (6, 'six'), (7, 'seven'), (8, 'eight');

-- ## children of each kind
INSERT INTO fk_cascade VALUES (1, 2), (2, 2), (3, 3);
INSERT INTO fk_null VALUES (1, 2), (2, 4);
INSERT INTO fk_default VALUES (1, 2), (2, 5);

-- ## a child without a parent is refused
-- expect: error SQLITE_CONSTRAINT_FOREIGNKEY
INSERT INTO fk_cascade VALUES (9, 999);

-- ## a NULL reference
INSERT INTO fk_cascade VALUES (10, NULL);

-- ## ON DELETE CASCADE, SET NULL and SET DEFAULT together
DELETE FROM fk_p WHERE id = 2;

-- ## ON UPDATE CASCADE
UPDATE fk_p SET id = 30 WHERE id = 3;

-- ## ON UPDATE SET NULL
UPDATE fk_p SET id = 40 WHERE id = 4;

-- ## ON UPDATE SET DEFAULT
UPDATE fk_p SET id = 50 WHERE id = 5;

-- ## RESTRICT refuses DELETE and UPDATE
INSERT INTO fk_restrict VALUES (1, 6);
-- expect: error SQLITE_CONSTRAINT_FOREIGNKEY
DELETE FROM fk_p WHERE id = 6;
-- expect: error SQLITE_CONSTRAINT_FOREIGNKEY
UPDATE fk_p SET id = 60 WHERE id = 6;

-- ## NO ACTION refuses DELETE
INSERT INTO fk_none VALUES (1, 7);
-- expect: error SQLITE_CONSTRAINT_FOREIGNKEY
DELETE FROM fk_p WHERE id = 7;

-- ## UPDATE of a child to another parent
UPDATE fk_none SET p = 8 WHERE id = 1;
DELETE FROM fk_p WHERE id = 7;

-- ## a key that references a unique column
CREATE TABLE fk_uniq(id INTEGER PRIMARY KEY, k REFERENCES fk_p(k) ON UPDATE CASCADE ON DELETE CASCADE);
INSERT INTO fk_uniq VALUES (1, 'eight'), (2, 'one');
UPDATE fk_p SET k = 'acht' WHERE k = 'eight';

-- ## a key of several columns
CREATE TABLE fk_pair(a, b, PRIMARY KEY(a, b));
CREATE TABLE fk_pair_child(id INTEGER PRIMARY KEY, x, y, FOREIGN KEY(x, y) REFERENCES fk_pair(a, b) ON DELETE CASCADE ON UPDATE CASCADE);
INSERT INTO fk_pair VALUES (1, 1), (1, 2);
INSERT INTO fk_pair_child VALUES (1, 1, 1), (2, 1, 2), (3, 1, NULL);
UPDATE fk_pair SET b = 22 WHERE b = 2;
DELETE FROM fk_pair WHERE b = 1;

-- ## a table that references itself
CREATE TABLE fk_tree(id INTEGER PRIMARY KEY, up REFERENCES fk_tree(id) ON DELETE CASCADE ON UPDATE CASCADE);
INSERT INTO fk_tree VALUES (1, NULL), (2, 1), (3, 2), (4, 3), (5, 1);
UPDATE fk_tree SET id = 20 WHERE id = 2;
DELETE FROM fk_tree WHERE id = 20;

-- ## a chain of cascades
CREATE TABLE fk_a(id INTEGER PRIMARY KEY);
CREATE TABLE fk_b(id INTEGER PRIMARY KEY, a REFERENCES fk_a(id) ON DELETE CASCADE);
CREATE TABLE fk_c(id INTEGER PRIMARY KEY, b REFERENCES fk_b(id) ON DELETE SET NULL);
INSERT INTO fk_a VALUES (1), (2);
INSERT INTO fk_b VALUES (1, 1), (2, 1), (3, 2);
INSERT INTO fk_c VALUES (1, 1), (2, 2), (3, 3);
DELETE FROM fk_a WHERE id = 1;

-- ## REPLACE of a parent cascades
REPLACE INTO fk_a VALUES (2);

-- ## DELETE of all parents cascades
DELETE FROM fk_a;

-- ## a deferred key repaired before COMMIT
CREATE TABLE fk_late(id INTEGER PRIMARY KEY, p REFERENCES fk_p(id) DEFERRABLE INITIALLY DEFERRED);
BEGIN;
INSERT INTO fk_late VALUES (1, 500);
INSERT INTO fk_p VALUES (500, 'late');
COMMIT;

-- ## a deferred key not repaired: COMMIT is refused
BEGIN;
INSERT INTO fk_late VALUES (2, 501);
-- expect: error SQLITE_CONSTRAINT_FOREIGNKEY
COMMIT;
ROLLBACK;

-- ## a deferred key not repaired, in one statement
-- only: autocommit
-- expect: error SQLITE_CONSTRAINT_FOREIGNKEY
INSERT INTO fk_late VALUES (3, 502);

-- ## DROP TABLE of a parent whose children cascade
CREATE TABLE fk_gone(id INTEGER PRIMARY KEY);
CREATE TABLE fk_gone_child(id INTEGER PRIMARY KEY, p REFERENCES fk_gone(id) ON DELETE CASCADE);
INSERT INTO fk_gone VALUES (1), (2);
INSERT INTO fk_gone_child VALUES (1, 1), (2, 2);
DROP TABLE fk_gone;

-- ## foreign keys off for the session
-- only: autocommit
PRAGMA foreign_keys = OFF;
INSERT INTO fk_cascade VALUES (900, 12345);
PRAGMA foreign_keys = ON;

-- ## triggers fired by foreign-key actions
CREATE TABLE fk_log(what);
CREATE TRIGGER fk_tr AFTER DELETE ON fk_uniq BEGIN INSERT INTO fk_log VALUES ('deleted ' || old.k); END;
UPDATE fk_none SET p = NULL;
DELETE FROM fk_p WHERE k = 'acht';

-- # Triggers

-- setup
CREATE TABLE trg(id INTEGER PRIMARY KEY, a, b);
CREATE TABLE trg_log(id INTEGER PRIMARY KEY, what, n);

-- ## AFTER INSERT that writes elsewhere
CREATE TRIGGER trg_ai AFTER INSERT ON trg BEGIN INSERT INTO trg_log(what, n) VALUES ('insert', new.id); END;
INSERT INTO trg VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3);

-- ## BEFORE INSERT
CREATE TRIGGER trg_bi BEFORE INSERT ON trg BEGIN INSERT INTO trg_log(what, n) VALUES ('before insert', new.a); END;
INSERT INTO trg VALUES (4, 'd', 4);

-- ## AFTER UPDATE OF a column
CREATE TRIGGER trg_au AFTER UPDATE OF a ON trg BEGIN INSERT INTO trg_log(what, n) VALUES (old.a || '->' || new.a, new.id); END;
UPDATE trg SET a = 'A' WHERE id = 1;
UPDATE trg SET b = 100 WHERE id = 1;

-- ## BEFORE UPDATE
CREATE TRIGGER trg_bu BEFORE UPDATE ON trg BEGIN INSERT INTO trg_log(what, n) VALUES ('before update', old.id); END;
UPDATE trg SET b = b + 1;

-- ## AFTER DELETE
CREATE TRIGGER trg_ad AFTER DELETE ON trg BEGIN INSERT INTO trg_log(what, n) VALUES ('delete', old.id); END;
DELETE FROM trg WHERE id = 2;

-- ## BEFORE DELETE
CREATE TRIGGER trg_bd BEFORE DELETE ON trg BEGIN DELETE FROM trg_log WHERE n = old.id; END;
DELETE FROM trg WHERE id = 3;

-- ## a trigger with WHEN
CREATE TRIGGER trg_when AFTER INSERT ON trg WHEN new.b > 100 BEGIN INSERT INTO trg_log(what, n) VALUES ('big', new.b); END;
INSERT INTO trg VALUES (10, 'small', 1), (11, 'big', 1000);

-- ## FOR EACH ROW spelled out
CREATE TRIGGER trg_each AFTER INSERT ON trg FOR EACH ROW BEGIN UPDATE trg_log SET n = n + 1 WHERE what = 'big'; END;
INSERT INTO trg VALUES (12, 'x', 1), (13, 'y', 1);

-- ## a trigger that updates its own row
CREATE TABLE trg_self(id INTEGER PRIMARY KEY, v, twice);
CREATE TRIGGER trg_self_ai AFTER INSERT ON trg_self BEGIN UPDATE trg_self SET twice = new.v * 2 WHERE id = new.id; END;
INSERT INTO trg_self(v) VALUES (1), (2), (3);

-- ## a trigger that keeps a time stamp of updates
CREATE TABLE trg_stamp(id INTEGER PRIMARY KEY, v, changed);
CREATE TRIGGER trg_stamp_au AFTER UPDATE OF v ON trg_stamp BEGIN UPDATE trg_stamp SET changed = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE id = new.id; END;
INSERT INTO trg_stamp(v) VALUES (1), (2);
UPDATE trg_stamp SET v = v + 1;

-- ## a trigger that deletes its own row
CREATE TABLE trg_gone(id INTEGER PRIMARY KEY, v);
CREATE TRIGGER trg_gone_ai AFTER INSERT ON trg_gone WHEN new.v IS NULL BEGIN DELETE FROM trg_gone WHERE id = new.id; END;
INSERT INTO trg_gone(v) VALUES (1), (NULL), (3);

-- ## nested triggers over three tables
CREATE TABLE trg_n1(x);
CREATE TABLE trg_n2(x);
CREATE TABLE trg_n3(x);
CREATE TRIGGER trg_n1_ai AFTER INSERT ON trg_n1 BEGIN INSERT INTO trg_n2 VALUES (new.x + 1); END;
CREATE TRIGGER trg_n2_ai AFTER INSERT ON trg_n2 BEGIN INSERT INTO trg_n3 VALUES (new.x + 1); UPDATE trg_n1 SET x = x + 100; END;
INSERT INTO trg_n1 VALUES (1), (2);

-- ## several statements in a body
CREATE TABLE trg_many(x);
CREATE TRIGGER trg_many_ai AFTER INSERT ON trg_many BEGIN
  INSERT INTO trg_log(what) VALUES ('one; two');
  UPDATE trg_log SET n = 0 WHERE n IS NULL;
  DELETE FROM trg_log WHERE what = 'insert';
  SELECT 1;
END;
INSERT INTO trg_many VALUES (1);

-- ## an upsert in a body
CREATE TABLE trg_count(k TEXT PRIMARY KEY, n);
CREATE TRIGGER trg_up AFTER INSERT ON trg_many BEGIN INSERT INTO trg_count VALUES (new.x, 1) ON CONFLICT(k) DO UPDATE SET n = n + 1; END;
INSERT INTO trg_many VALUES ('k'), ('k'), ('l');

-- ## INSERT OR IGNORE in a body
CREATE TABLE trg_seen(k PRIMARY KEY);
CREATE TRIGGER trg_ign AFTER INSERT ON trg_many BEGIN INSERT OR IGNORE INTO trg_seen VALUES (new.x); END;
INSERT INTO trg_many VALUES ('m'), ('m');

-- ## REPLACE in a body, into a table without triggers
CREATE TABLE trg_last(k INTEGER PRIMARY KEY, x);
CREATE TRIGGER trg_rep AFTER INSERT ON trg_many BEGIN REPLACE INTO trg_last VALUES (1, new.x); END;
INSERT INTO trg_many VALUES ('first'), ('last');

-- ## INSERT … SELECT in a body
CREATE TABLE trg_copy(k, n);
CREATE TRIGGER trg_sel AFTER DELETE ON trg_many BEGIN INSERT INTO trg_copy SELECT k, n FROM trg_count WHERE k = old.x; END;
DELETE FROM trg_many WHERE x = 'k';

-- ## RAISE(ABORT)
CREATE TABLE trg_raise(x);
CREATE TRIGGER trg_abort BEFORE INSERT ON trg_raise WHEN new.x < 0 BEGIN SELECT RAISE(ABORT, 'negative'); END;
-- expect: error SQLITE_CONSTRAINT_TRIGGER
INSERT INTO trg_raise VALUES (1), (-1);
INSERT INTO trg_raise VALUES (2);

-- ## RAISE(IGNORE)
CREATE TRIGGER trg_skip BEFORE INSERT ON trg_raise WHEN new.x = 0 BEGIN SELECT RAISE(IGNORE); END;
INSERT INTO trg_raise VALUES (5), (0), (6);

-- ## RAISE(FAIL)
CREATE TRIGGER trg_fail BEFORE INSERT ON trg_raise WHEN new.x = 99 BEGIN SELECT RAISE(FAIL, 'ninety-nine'); END;
-- expect: error SQLITE_CONSTRAINT_TRIGGER
INSERT INTO trg_raise VALUES (7), (99), (8);

-- ## OR FAIL, and a trigger's update that fails: the whole statement is undone
CREATE TABLE trg_or_fail(id INTEGER PRIMARY KEY, u UNIQUE);
INSERT INTO trg_or_fail VALUES (1, 'taken');
CREATE TRIGGER trg_of_ai AFTER INSERT ON trg_or_fail BEGIN UPDATE trg_or_fail SET u = 'taken' WHERE id = new.id; END;
-- expect: error SQLITE_CONSTRAINT_UNIQUE
INSERT OR FAIL INTO trg_or_fail VALUES (2, 'free');

-- ## RAISE(FAIL) after the row was inserted: the whole statement is undone
CREATE TABLE trg_late(id INTEGER PRIMARY KEY, x);
CREATE TRIGGER trg_late_ai AFTER INSERT ON trg_late WHEN new.x < 0 BEGIN SELECT RAISE(FAIL, 'too late'); END;
-- expect: error SQLITE_CONSTRAINT_TRIGGER
INSERT INTO trg_late VALUES (1, 1), (2, -1), (3, 3);

-- ## two triggers on one event: the order they fire in
CREATE TABLE trg_order(id INTEGER PRIMARY KEY, x);
CREATE TRIGGER trg_o1 AFTER INSERT ON trg_order BEGIN INSERT INTO trg_log(what) VALUES ('o1'); END;
CREATE TRIGGER trg_o2 AFTER INSERT ON trg_order BEGIN INSERT INTO trg_log(what) VALUES ('o2'); END;
INSERT INTO trg_order(x) VALUES (1);

-- ## DROP TRIGGER, and a trigger made again
DROP TRIGGER trg_o1;
INSERT INTO trg_order(x) VALUES (2);
CREATE TRIGGER trg_o1 AFTER INSERT ON trg_order BEGIN INSERT INTO trg_log(what) VALUES ('o1 again'); END;
INSERT INTO trg_order(x) VALUES (3);

-- ## CREATE TRIGGER IF NOT EXISTS and DROP TRIGGER IF EXISTS
CREATE TRIGGER IF NOT EXISTS trg_o1 AFTER INSERT ON trg_order BEGIN DELETE FROM trg_order; END;
DROP TRIGGER IF EXISTS trg_no_such;
INSERT INTO trg_order(x) VALUES (4);

-- ## a trigger on a table that is renamed
ALTER TABLE trg_order RENAME TO trg_renamed;
INSERT INTO trg_renamed(x) VALUES (5);

-- ## a trigger that names a column which is renamed
CREATE TABLE trg_col(id INTEGER PRIMARY KEY, old_name);
CREATE TRIGGER trg_col_ai AFTER INSERT ON trg_col BEGIN INSERT INTO trg_log(what) VALUES (new.old_name); END;
ALTER TABLE trg_col RENAME COLUMN old_name TO new_name;
INSERT INTO trg_col(new_name) VALUES ('renamed');

-- ## a table with triggers is dropped
CREATE TABLE trg_drop(x);
CREATE TRIGGER trg_drop_ai AFTER INSERT ON trg_drop BEGIN INSERT INTO trg_log(what) VALUES ('never again'); END;
INSERT INTO trg_drop VALUES (1);
DROP TABLE trg_drop;
CREATE TABLE trg_drop(x);
INSERT INTO trg_drop VALUES (2);

-- ## trigger made, used and dropped in one transaction
BEGIN;
CREATE TRIGGER trg_tx AFTER INSERT ON trg_drop BEGIN INSERT INTO trg_log(what) VALUES ('in transaction'); END;
INSERT INTO trg_drop VALUES (3);
DROP TRIGGER trg_tx;
INSERT INTO trg_drop VALUES (4);
COMMIT;

-- ## a trigger fired by an upsert's update
CREATE TABLE trg_ups(id INTEGER PRIMARY KEY, v);
CREATE TRIGGER trg_ups_au AFTER UPDATE ON trg_ups BEGIN INSERT INTO trg_log(what) VALUES ('upserted'); END;
INSERT INTO trg_ups VALUES (1, 1), (1, 2) ON CONFLICT(id) DO UPDATE SET v = excluded.v;

-- ## REPLACE into a table whose triggers only insert
CREATE TABLE trg_rp(id INTEGER PRIMARY KEY, u UNIQUE);
CREATE TRIGGER trg_rp_ai AFTER INSERT ON trg_rp BEGIN INSERT INTO trg_log(what) VALUES ('rp ' || new.id); END;
CREATE TRIGGER trg_rp_ad AFTER DELETE ON trg_rp BEGIN INSERT INTO trg_log(what) VALUES ('rp gone ' || old.id); END;
INSERT INTO trg_rp VALUES (1, 'a'), (2, 'b');
REPLACE INTO trg_rp VALUES (3, 'a');
REPLACE INTO trg_rp VALUES (2, 'c');

-- ## a trigger that reads last_insert_rowid
CREATE TABLE trg_lir(id INTEGER PRIMARY KEY, r);
CREATE TRIGGER trg_lir_ai AFTER INSERT ON trg_many BEGIN INSERT INTO trg_lir(r) VALUES (last_insert_rowid()); END;
INSERT INTO trg_many VALUES ('lir');

-- # Changing tables

-- setup
CREATE TABLE alt(id INTEGER PRIMARY KEY, a, b TEXT);
INSERT INTO alt VALUES (1, 'a1', 'b1'), (2, 'a2', 'b2');

-- ## ADD COLUMN
ALTER TABLE alt ADD COLUMN c;
INSERT INTO alt VALUES (3, 'a3', 'b3', 'c3');

-- ## ADD COLUMN with a default: old rows have it
ALTER TABLE alt ADD COLUMN d INTEGER DEFAULT 42;
INSERT INTO alt(id) VALUES (4);

-- ## ADD COLUMN NOT NULL with a default
ALTER TABLE alt ADD COLUMN e TEXT NOT NULL DEFAULT 'there';
UPDATE alt SET e = 'changed' WHERE id = 1;

-- ## ADD COLUMN with CHECK and COLLATE
ALTER TABLE alt ADD COLUMN f TEXT COLLATE NOCASE CHECK (f <> 'bad');
-- expect: error SQLITE_CONSTRAINT_CHECK
UPDATE alt SET f = 'bad';

-- ## ADD without the word COLUMN
ALTER TABLE alt ADD g REAL;

-- ## ADD COLUMN with a reference
ALTER TABLE alt ADD COLUMN h INTEGER REFERENCES alt(id);
UPDATE alt SET h = 1 WHERE id = 2;

-- ## DROP COLUMN
ALTER TABLE alt DROP COLUMN a;
INSERT INTO alt(id, b) VALUES (5, 'after drop');

-- ## DROP COLUMN in the middle, then ADD it again
ALTER TABLE alt DROP COLUMN c;
ALTER TABLE alt ADD COLUMN c DEFAULT 'new c';

-- ## RENAME COLUMN
ALTER TABLE alt RENAME COLUMN b TO bee;
UPDATE alt SET bee = bee || '!' WHERE id < 3;

-- ## RENAME without the word COLUMN
ALTER TABLE alt RENAME bee TO "b b";
INSERT INTO alt(id, "b b") VALUES (6, 'spaced');

-- ## RENAME of the key column
ALTER TABLE alt RENAME COLUMN id TO key;
INSERT INTO alt(key) VALUES (7);

-- ## RENAME of an indexed column
CREATE INDEX alt_d ON alt(d);
ALTER TABLE alt RENAME COLUMN d TO dee;
UPDATE alt SET dee = dee + 1;

-- ## RENAME TABLE
ALTER TABLE alt RENAME TO alt2;
INSERT INTO alt2(key) VALUES (8);

-- ## a chain of renames with writes between
ALTER TABLE alt2 RENAME TO alt3;
UPDATE alt3 SET dee = 1 WHERE key = 1;
ALTER TABLE alt3 RENAME TO alt4;
DELETE FROM alt4 WHERE key = 2;
ALTER TABLE alt4 RENAME TO alt;

-- ## two tables swap their names
CREATE TABLE alt_x(id INTEGER PRIMARY KEY, v);
CREATE TABLE alt_y(id INTEGER PRIMARY KEY, v);
INSERT INTO alt_x VALUES (1, 'x'), (2, 'x');
INSERT INTO alt_y VALUES (1, 'y'), (3, 'y');
ALTER TABLE alt_x RENAME TO alt_t;
ALTER TABLE alt_y RENAME TO alt_x;
ALTER TABLE alt_t RENAME TO alt_y;
INSERT INTO alt_x VALUES (2, 'was y');
INSERT INTO alt_y VALUES (3, 'was x');

-- ## two tables swap their names in one transaction, with writes
BEGIN;
UPDATE alt_x SET v = v || '1';
ALTER TABLE alt_x RENAME TO alt_t;
INSERT INTO alt_t VALUES (50, 'between');
ALTER TABLE alt_y RENAME TO alt_x;
ALTER TABLE alt_t RENAME TO alt_y;
DELETE FROM alt_y WHERE id = 1;
INSERT INTO alt_x VALUES (51, 'end');
COMMIT;

-- ## rename, then a new table of the old name with the same keys
CREATE TABLE alt_o(id INTEGER PRIMARY KEY, v);
INSERT INTO alt_o VALUES (5, 'old'), (6, 'same');
UPDATE alt_o SET v = 'new' WHERE id = 5;
ALTER TABLE alt_o RENAME TO alt_moved;
CREATE TABLE alt_o(q);
INSERT INTO alt_o(rowid, q) VALUES (5, 1);

-- ## the same in one transaction
BEGIN;
UPDATE alt_moved SET v = 'newer' WHERE id = 6;
ALTER TABLE alt_moved RENAME TO alt_moved2;
CREATE TABLE alt_moved(q);
INSERT INTO alt_moved(rowid, q) VALUES (6, 1);
COMMIT;

-- ## several changes and writes in one transaction
BEGIN;
CREATE TABLE alt_tx(id INTEGER PRIMARY KEY, a UNIQUE);
INSERT INTO alt_tx VALUES (1, 1), (2, 2), (3, 3);
UPDATE alt_tx SET a = a + 10;
ALTER TABLE alt_tx ADD COLUMN z NOT NULL DEFAULT 4;
UPDATE alt_tx SET z = 5 WHERE id = 1;
ALTER TABLE alt_tx DROP COLUMN z;
ALTER TABLE alt_tx ADD COLUMN z DEFAULT 'q';
DELETE FROM alt_tx WHERE id = 3;
COMMIT;

-- ## a schema change that is rolled back
BEGIN;
ALTER TABLE alt_tx ADD COLUMN never;
UPDATE alt_tx SET never = 1;
ALTER TABLE alt_tx RENAME TO alt_never;
ROLLBACK;
INSERT INTO alt_tx(id) VALUES (9);

-- ## RENAME in another case
ALTER TABLE alt_tx RENAME TO ALT_TX2;
INSERT INTO alt_tx2(id) VALUES (10);

-- ## a failed ALTER
-- expect: error SQLITE_ERROR
ALTER TABLE alt_tx2 ADD COLUMN id;

-- # Creating and dropping

-- ## CREATE TABLE and its first rows in one transaction
BEGIN;
CREATE TABLE cre(id INTEGER PRIMARY KEY, v);
INSERT INTO cre VALUES (1, 'a');
COMMIT;

-- ## CREATE TABLE IF NOT EXISTS of one that exists
CREATE TABLE IF NOT EXISTS cre(other);
INSERT INTO cre(v) VALUES ('b');

-- ## CREATE TABLE that exists
-- expect: error SQLITE_ERROR
CREATE TABLE cre(x);

-- ## DROP TABLE
CREATE TABLE cre_gone(x);
INSERT INTO cre_gone VALUES (1), (2);
DROP TABLE cre_gone;

-- ## DROP TABLE IF EXISTS of none
DROP TABLE IF EXISTS cre_gone;

-- ## drop and create again with other columns
CREATE TABLE cre_again(id INTEGER PRIMARY KEY, a);
INSERT INTO cre_again VALUES (1, 'x'), (2, 'y');
DROP TABLE cre_again;
CREATE TABLE cre_again(b, id INTEGER PRIMARY KEY);
INSERT INTO cre_again VALUES ('n', 2);

-- ## drop and create again in one transaction
BEGIN;
UPDATE cre_again SET b = 'm';
DROP TABLE cre_again;
CREATE TABLE cre_again(c);
INSERT INTO cre_again(rowid, c) VALUES (2, 'third');
COMMIT;

-- ## the same table made and dropped many times
CREATE TABLE cre_many(a);
INSERT INTO cre_many VALUES (1);
DROP TABLE cre_many;
CREATE TABLE cre_many(a, b);
INSERT INTO cre_many VALUES (1, 2);
DROP TABLE cre_many;
CREATE TABLE cre_many(a, b, c);
INSERT INTO cre_many VALUES (1, 2, 3);

-- ## a table that is never filled
CREATE TABLE cre_empty(a, b);

-- ## CREATE TABLE AS SELECT
CREATE TABLE cre_as AS SELECT id, v FROM cre;

-- ## CREATE TABLE AS SELECT of expressions
CREATE TABLE cre_expr AS SELECT 1 AS one, 'two' AS two, 3.0 AS three, x'04' AS four, NULL AS five, 1 + 1 AS six;
INSERT INTO cre_expr SELECT * FROM cre_expr;

-- ## CREATE TABLE AS SELECT without rows
CREATE TABLE cre_none AS SELECT * FROM cre WHERE 0;

-- ## CREATE TABLE IF NOT EXISTS … AS SELECT of one that exists
CREATE TABLE IF NOT EXISTS cre_none AS SELECT * FROM cre;

-- ## CREATE TABLE AS with a compound, a CTE and ORDER BY
CREATE TABLE cre_cte AS WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT i, i * i AS sq FROM n ORDER BY i DESC;

-- ## CREATE TABLE AS inside a transaction, then changed
BEGIN;
CREATE TABLE cre_in AS SELECT v FROM cre;
UPDATE cre_in SET v = v || v;
INSERT INTO cre_in VALUES ('more');
COMMIT;

-- ## STRICT
CREATE TABLE cre_strict(id INTEGER PRIMARY KEY, i INT, r REAL, t TEXT, b BLOB, a ANY) STRICT;
INSERT INTO cre_strict VALUES (1, 2, 3, '4', x'05', 6), (2, '7', '8.5', 9, x'', 'any');

-- ## STRICT refuses a wrong type
-- expect: error SQLITE_CONSTRAINT
INSERT INTO cre_strict(i) VALUES ('not a number');

-- ## a key that is not an integer
CREATE TABLE cre_text(k TEXT PRIMARY KEY, v);
INSERT INTO cre_text VALUES ('b', 1), ('a', 2), (NULL, 3), (NULL, 4);

-- ## INTEGER PRIMARY KEY DESC
CREATE TABLE cre_desc(id INTEGER PRIMARY KEY DESC, v);
INSERT INTO cre_desc VALUES (5, 'five'), (3, 'three');

-- ## a key of several columns
CREATE TABLE cre_multi(a, b, c, PRIMARY KEY(a, b DESC));
INSERT INTO cre_multi VALUES (1, 2, 3), (1, 1, 3);
UPDATE cre_multi SET b = 9 WHERE b = 2;

-- ## INT PRIMARY KEY, which is no alias of the row id
CREATE TABLE cre_int(id INT PRIMARY KEY, v);
INSERT INTO cre_int VALUES (100, 'a'), (50, 'b');

-- ## columns without types, and odd types
CREATE TABLE cre_types(a, b VARCHAR(10), c DECIMAL(10, 2), d BOOLEAN, e DATETIME, f "odd type", g BIGINT UNSIGNED);
INSERT INTO cre_types VALUES ('1', 2, '3.50', true, '2026-01-01', 6, '7');

-- ## comments in a definition
CREATE TABLE cre_comment(a /* first */, -- second comes
  b);
INSERT INTO cre_comment VALUES (1, 2);

-- # Views

-- setup
CREATE TABLE vie(id INTEGER PRIMARY KEY, a, b);
INSERT INTO vie VALUES (1, 'x', 10), (2, 'y', 20);

-- ## CREATE VIEW
CREATE VIEW vie_v AS SELECT id, a FROM vie WHERE b > 10;

-- ## CREATE VIEW with column names
CREATE VIEW vie_n(x, y) AS SELECT a, b FROM vie;

-- ## CREATE VIEW IF NOT EXISTS
CREATE VIEW IF NOT EXISTS vie_n AS SELECT 1;

-- ## a view of a view, with join and aggregate
CREATE VIEW vie_j AS SELECT v.a, count(*) AS n, sum(t.b) AS s FROM vie_v v JOIN vie t ON t.id >= v.id GROUP BY v.a;

-- ## a view with a CTE
CREATE VIEW vie_c AS WITH w AS (SELECT a FROM vie) SELECT upper(a) AS u FROM w;

-- ## INSERT … SELECT from a view
CREATE TABLE vie_t(x, y);
INSERT INTO vie_t SELECT x, y FROM vie_n;

-- ## DROP VIEW and one made again
DROP VIEW vie_v;
DROP VIEW IF EXISTS vie_no_such;
CREATE VIEW vie_v AS SELECT id FROM vie;

-- ## a view whose table is renamed
DROP VIEW vie_j;
ALTER TABLE vie RENAME TO vie2;
INSERT INTO vie2 VALUES (3, 'z', 30);

-- ## a view whose column is renamed
ALTER TABLE vie2 RENAME COLUMN a TO aa;
INSERT INTO vie2 VALUES (4, 'w', 40);

-- # Indexes

-- setup
CREATE TABLE idx(id INTEGER PRIMARY KEY, a TEXT, b INTEGER, c);
INSERT INTO idx VALUES (1, 'Apple', 1, NULL), (2, 'apple', 2, 'x'), (3, 'Pear', -3, 'y');

-- ## CREATE INDEX on rows that no key touches
CREATE INDEX idx_a ON idx(a);

-- ## CREATE UNIQUE INDEX
CREATE UNIQUE INDEX idx_ab ON idx(a, b DESC);
UPDATE idx SET b = b + 1;

-- ## CREATE UNIQUE INDEX over values that are not unique
INSERT INTO idx VALUES (4, 'twin', 9, 'q'), (5, 'twin', 10, 'q');
-- expect: error SQLITE_CONSTRAINT_UNIQUE
CREATE UNIQUE INDEX idx_bad ON idx(c) WHERE c = 'q';

-- ## a partial index
CREATE UNIQUE INDEX idx_part ON idx(b) WHERE c IS NOT NULL AND b > 0;
-- expect: error SQLITE_CONSTRAINT_UNIQUE
INSERT INTO idx VALUES (6, 'z', 9, 'w');
INSERT INTO idx VALUES (7, 'z', 9, NULL);

-- ## an index on an expression
CREATE INDEX idx_lower ON idx(lower(a));
CREATE UNIQUE INDEX idx_sum ON idx(b * 2 + 1, a);
UPDATE idx SET a = upper(a) WHERE id = 3;

-- ## a collated index
CREATE INDEX idx_nocase ON idx(a COLLATE NOCASE DESC);
CREATE INDEX idx_rtrim ON idx(a COLLATE RTRIM);
UPDATE idx SET a = a || '  ' WHERE id = 1;

-- ## CREATE INDEX IF NOT EXISTS
CREATE INDEX IF NOT EXISTS idx_a ON idx(b);

-- ## DROP INDEX
DROP INDEX idx_sum;
DROP INDEX IF EXISTS idx_no_such;

-- ## an index dropped, rows changed, the index made again in one transaction
BEGIN;
DROP INDEX idx_ab;
UPDATE idx SET a = 'same', b = 0 WHERE id IN (1, 2);
UPDATE idx SET b = id WHERE id IN (1, 2);
CREATE UNIQUE INDEX idx_ab ON idx(a, b);
COMMIT;

-- ## REPLACE that evicts by an index on an expression
CREATE TABLE idx_e(id INTEGER PRIMARY KEY, a);
CREATE UNIQUE INDEX idx_e_l ON idx_e(lower(a));
INSERT INTO idx_e VALUES (1, 'A'), (2, 'b');
INSERT OR REPLACE INTO idx_e VALUES (3, 'a');

-- ## UNIQUE COLLATE NOCASE in a definition
CREATE TABLE idx_c(id INTEGER PRIMARY KEY, a TEXT COLLATE NOCASE UNIQUE);
INSERT INTO idx_c VALUES (1, 'Word');
-- expect: error SQLITE_CONSTRAINT_UNIQUE
INSERT INTO idx_c VALUES (2, 'WORD');

-- ## REINDEX of everything, of a table, of an index
REINDEX;
REINDEX idx;
REINDEX idx_a;
UPDATE idx SET a = a || '!';

-- ## a query by an index
SELECT count(*) FROM idx WHERE a = 'same';

-- # Rebuilding tables, as migration tools do

-- ## copy, drop, rename (Rails, Django, Alembic)
CREATE TABLE mig(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, age TEXT);
CREATE INDEX mig_name ON mig(name);
INSERT INTO mig(name, age) VALUES ('a', '1'), ('b', '2');
BEGIN;
CREATE TABLE mig_new(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, age INTEGER);
INSERT INTO mig_new(id, name, age) SELECT id, name, age FROM mig;
DROP TABLE mig;
ALTER TABLE mig_new RENAME TO mig;
CREATE INDEX mig_name ON mig(name);
COMMIT;
INSERT INTO mig(name, age) VALUES ('c', 3);

-- ## rename the old one away first
BEGIN;
ALTER TABLE mig RENAME TO mig_old;
CREATE TABLE mig(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, age INTEGER CHECK (age >= 0));
INSERT INTO mig SELECT * FROM mig_old;
DROP TABLE mig_old;
COMMIT;
UPDATE mig SET age = age + 1;

-- ## the same in single statements
CREATE TABLE mig_tmp AS SELECT * FROM mig;
DROP TABLE mig;
CREATE TABLE mig(id INTEGER PRIMARY KEY, name TEXT);
INSERT INTO mig SELECT id, name FROM mig_tmp;
DROP TABLE mig_tmp;

-- ## a rebuild with triggers and a view
CREATE TABLE mig_log(x);
CREATE TRIGGER mig_ai AFTER INSERT ON mig BEGIN INSERT INTO mig_log VALUES (new.name); END;
INSERT INTO mig(name) VALUES ('traced');
BEGIN;
CREATE TABLE mig_new(id INTEGER PRIMARY KEY, name TEXT, extra DEFAULT 'e');
INSERT INTO mig_new(id, name) SELECT id, name FROM mig;
DROP TABLE mig;
ALTER TABLE mig_new RENAME TO mig;
CREATE TRIGGER mig_ai AFTER INSERT ON mig BEGIN INSERT INTO mig_log VALUES (new.name || '!'); END;
COMMIT;
INSERT INTO mig(name) VALUES ('traced again');

-- ## a table of migrations kept beside
CREATE TABLE IF NOT EXISTS schema_migrations(version TEXT PRIMARY KEY, applied_at TEXT DEFAULT CURRENT_TIMESTAMP);
INSERT INTO schema_migrations(version) VALUES ('20260101'), ('20260102');
DELETE FROM schema_migrations WHERE version = '20260102';

-- # AUTOINCREMENT and sequences

-- setup
CREATE TABLE seq(id INTEGER PRIMARY KEY AUTOINCREMENT, u UNIQUE);

-- ## AUTOINCREMENT
INSERT INTO seq(u) VALUES ('a'), ('b');

-- ## an explicit id moves the sequence
INSERT INTO seq VALUES (50, 'c');
INSERT INTO seq(u) VALUES ('d');

-- ## an ignored insert
INSERT OR IGNORE INTO seq(u) VALUES ('a');

-- ## a failed insert
-- expect: error SQLITE_CONSTRAINT_UNIQUE
INSERT INTO seq(u) VALUES ('a');

-- ## INSERT OR FAIL that fails at its first row
-- expect: error SQLITE_CONSTRAINT_UNIQUE
INSERT OR FAIL INTO seq(u) VALUES ('a');

-- ## INSERT OR FAIL that fails at its second row
-- expect: error SQLITE_CONSTRAINT_UNIQUE
INSERT OR FAIL INTO seq(u) VALUES ('or fail'), ('a');

-- ## ids are not used again after DELETE
DELETE FROM seq WHERE id > 50;
INSERT INTO seq(u) VALUES ('e');

-- ## all rows deleted, the sequence stays
DELETE FROM seq;
INSERT INTO seq(u) VALUES ('f');

-- ## REPLACE takes a new id
REPLACE INTO seq(u) VALUES ('f');

-- ## upsert that updates moves the sequence or not, the same on both sides
INSERT INTO seq(u) VALUES ('f') ON CONFLICT(u) DO UPDATE SET u = 'g';

-- ## a rolled back insert
BEGIN;
INSERT INTO seq(u) VALUES ('never');
ROLLBACK;
INSERT INTO seq(u) VALUES ('h');

-- ## the table is renamed, its sequence follows
ALTER TABLE seq RENAME TO seq2;
INSERT INTO seq2(u) VALUES ('i');

-- ## the table is dropped, its sequence goes
CREATE TABLE seq_gone(id INTEGER PRIMARY KEY AUTOINCREMENT);
INSERT INTO seq_gone VALUES (500);
DROP TABLE seq_gone;
CREATE TABLE seq_gone(id INTEGER PRIMARY KEY AUTOINCREMENT);
INSERT INTO seq_gone DEFAULT VALUES;

-- ## two sequences in one transaction
CREATE TABLE seq_b(id INTEGER PRIMARY KEY AUTOINCREMENT, v);
BEGIN;
INSERT INTO seq2(u) VALUES ('j');
INSERT INTO seq_b(v) VALUES (1), (2), (3);
DELETE FROM seq_b;
COMMIT;

-- ## an AUTOINCREMENT table without rows
CREATE TABLE seq_empty(id INTEGER PRIMARY KEY AUTOINCREMENT, v);

-- # Header values

-- ## PRAGMA user_version
PRAGMA user_version = 7;

-- ## PRAGMA user_version with a write beside it
BEGIN;
PRAGMA user_version = 8;
CREATE TABLE hdr(x);
COMMIT;

-- ## PRAGMA user_version rolled back
BEGIN;
PRAGMA user_version = 999;
ROLLBACK;

-- ## a negative user_version
PRAGMA user_version = -5;

-- ## PRAGMA user_version called as a function
PRAGMA user_version(11);

-- ## PRAGMA application_id
PRAGMA application_id = 1234567;

-- # Values

-- setup
CREATE TABLE val(id INTEGER PRIMARY KEY, v);

-- ## integers at the edges
INSERT INTO val(v) VALUES (0), (-1), (127), (128), (32767), (8388607), (2147483648), (9223372036854775807), (-9223372036854775807);

-- ## the smallest integer
INSERT INTO val(v) VALUES (-9223372036854775808);

-- ## reals at the edges
INSERT INTO val(v) VALUES (0.1), (1e308), (5e-324), (1.7976931348623157e308), (123456789.123456789);

-- ## negative zero beside zero
INSERT INTO val(v) VALUES (-0.0), (0.0);

-- ## infinities
INSERT INTO val(v) VALUES (9e999), (-9e999);

-- ## one as integer, real, text and blob
INSERT INTO val(v) VALUES (1), (1.0), ('1'), (x'31');

-- ## UPDATE from 1 to 1.0, and from 0.0 to -0.0
UPDATE val SET v = 1.0 WHERE v = 1 AND typeof(v) = 'integer';
UPDATE val SET v = -0.0 WHERE v = 0.0 AND typeof(v) = 'real';

-- ## text with NUL
INSERT INTO val(v) VALUES ('a' || char(0) || 'b'), (char(0)), ('end' || char(0));

-- ## empty text and empty blob
INSERT INTO val(v) VALUES (''), (x''), (zeroblob(0));

-- ## NULL
INSERT INTO val(v) VALUES (NULL);

-- ## text outside the basic plane, combining and right to left
INSERT INTO val(v) VALUES ('😀👩‍👩‍👧'), ('é' || 'é'), ('שלום'), (char(65533)), (char(1114111));

-- ## blobs of every byte
INSERT INTO val(v) VALUES (x'000102fdfeff'), (randomblob(1000)), (zeroblob(5000));

-- ## a real in an INTEGER column, and others that affinity changes
CREATE TABLE val_aff(id INTEGER PRIMARY KEY, i INTEGER, r REAL, t TEXT, n NUMERIC, b BLOB);
INSERT INTO val_aff VALUES (1, 1.0, 1, 1, '1.0', '1'), (2, '12', '12', 12.5, '12abc', 12), (3, 1.5, '1e3', x'31', 1e20, 1.0), (4, ' 7 ', 9007199254740993, true, '9223372036854775808', NULL);

-- ## a real that is stored as an integer keeps its class
INSERT INTO val_aff(r) VALUES (5), (-0.0), (1e15), (9007199254740992.0);

-- ## booleans and hexadecimal literals
INSERT INTO val(v) VALUES (TRUE), (FALSE), (0xff), (0x7fffffffffffffff);

-- ## JSON text and functions
INSERT INTO val(v) VALUES (json('{"a":[1,2,3]}')), (json_array(1, 'x', NULL)), (json_object('k', 1.5));
UPDATE val SET v = json_set(v, '$.a', 2) WHERE v LIKE '{"a"%';

-- ## dates
INSERT INTO val(v) VALUES (date('2026-02-28', '+1 day')), (unixepoch('2026-01-01')), (strftime('%s', '2026-01-01'));

-- ## a value of one megabyte, and one that overflows pages when updated
INSERT INTO val VALUES (1000, randomblob(1000000));
UPDATE val SET v = v || v WHERE id = 1000;

-- ## concatenation, casts and arithmetic
INSERT INTO val(v) VALUES ('a' || 1 || 2.5), (CAST('12.7' AS INTEGER)), (CAST(3 AS TEXT)), (7 / 2), (7 % 3), (7 / 2.0), (1 << 40), (~5), (5 / 0);

-- ## text of bytes that are not UTF-8 is repaired once, on the primary
INSERT INTO val(v) VALUES (CAST(x'61ff62' AS TEXT));

-- # Names

-- ## a table name with spaces and quotes
CREATE TABLE "my ""table"" here"("a b" INTEGER PRIMARY KEY, "c""d", 'e''f');
INSERT INTO "my ""table"" here" VALUES (1, 2, 3);
UPDATE "my ""table"" here" SET "c""d" = 'x';

-- ## keywords as names
CREATE TABLE "select"("from" INTEGER PRIMARY KEY, "where", "order" TEXT);
INSERT INTO "select" VALUES (1, 'w', 'o');
DELETE FROM "select" WHERE "from" = 1;
INSERT INTO "select"("where") VALUES ('again');

-- ## names in brackets and backticks
CREATE TABLE [brackets here](`back tick`, [x y]);
INSERT INTO [brackets here] VALUES (1, 2);

-- ## letters outside ASCII
CREATE TABLE "Größe_表"("ключ" INTEGER PRIMARY KEY, "значение");
INSERT INTO "Größe_表" VALUES (1, 'v');
CREATE INDEX "индекс" ON "Größe_表"("значение");

-- ## upper and lower case of one name
CREATE TABLE MixedCase(Id INTEGER PRIMARY KEY, Val);
INSERT INTO mixedcase VALUES (1, 'a');
UPDATE MIXEDCASE SET VAL = 'b' WHERE ID = 1;
DELETE FROM MixedCase WHERE id = 1;
INSERT INTO mIXEDcASE(vAL) VALUES ('c');

-- ## a column called rowid
CREATE TABLE nam_rowid(rowid TEXT, v);
INSERT INTO nam_rowid VALUES ('mine', 1), ('yours', 2);
UPDATE nam_rowid SET v = 3 WHERE rowid = 'mine';
DELETE FROM nam_rowid WHERE rowid = 'yours';

-- ## columns called oid and _rowid_
CREATE TABLE nam_oid(oid, _rowid_);
INSERT INTO nam_oid VALUES (1, 2), (3, 4);
DELETE FROM nam_oid WHERE oid = 1;

-- ## an integer key called rowid
CREATE TABLE nam_key(rowid INTEGER PRIMARY KEY, v);
INSERT INTO nam_key VALUES (5, 'five');
UPDATE nam_key SET rowid = 6;

-- ## a name that begins with a digit, a dot in a name, an empty-looking name
CREATE TABLE "1st"(x);
INSERT INTO "1st" VALUES (1);
CREATE TABLE "a.b"("c.d");
INSERT INTO "a.b" VALUES (1);
CREATE TABLE " "(" ");
INSERT INTO " " VALUES (1);

-- ## a long name
CREATE TABLE nam_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa(x);
INSERT INTO nam_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa VALUES (1);

-- ## main. before a name
CREATE TABLE main.nam_main(x);
INSERT INTO main.nam_main VALUES (1);
UPDATE main.nam_main SET x = 2;
DELETE FROM main.nam_main WHERE x = 3;

-- ## odd index, view and trigger names
CREATE INDEX "my index" ON nam_main(x);
CREATE VIEW "my view" AS SELECT x AS "odd column" FROM nam_main;
CREATE TRIGGER "my trigger" AFTER INSERT ON nam_main BEGIN INSERT INTO "1st" VALUES (new.x); END;
INSERT INTO nam_main VALUES (7);

-- # Common table expressions and queries in writes

-- setup
CREATE TABLE cte(id INTEGER PRIMARY KEY, v);

-- ## WITH … INSERT
WITH src(v) AS (VALUES ('a'), ('b'), ('c')) INSERT INTO cte(v) SELECT v FROM src;

-- ## WITH RECURSIVE … INSERT
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20) INSERT INTO cte(v) SELECT i FROM n;

-- ## WITH … UPDATE
WITH big AS (SELECT id FROM cte WHERE id > 15) UPDATE cte SET v = 'big' WHERE id IN (SELECT id FROM big);

-- ## WITH … DELETE
WITH odd AS (SELECT id FROM cte WHERE id % 2 = 1) DELETE FROM cte WHERE id IN (SELECT id FROM odd);

-- ## INSERT … WITH … SELECT
INSERT INTO cte(v) WITH a AS (SELECT 1 AS x), b AS (SELECT x + 1 AS x FROM a) SELECT x FROM b;

-- ## a window function in INSERT … SELECT
INSERT INTO cte(v) SELECT row_number() OVER (ORDER BY id DESC) FROM cte WHERE id < 8;

-- ## aggregates with GROUP BY and HAVING
INSERT INTO cte(v) SELECT count(*) || ':' || v FROM cte GROUP BY v HAVING count(*) >= 1;

-- ## joins
INSERT INTO cte(v) SELECT a.id + b.id FROM cte a JOIN cte b ON b.id = a.id + 2 WHERE a.id < 10;
INSERT INTO cte(v) SELECT b.id FROM cte a LEFT JOIN cte b ON b.id = a.id + 1 WHERE a.id < 6;

-- ## CASE, COALESCE, IIF, NULLIF
UPDATE cte SET v = CASE WHEN id < 10 THEN 'low' WHEN id < 20 THEN coalesce(NULL, v, 'x') ELSE iif(id % 2, nullif(v, 'big'), 'even') END;

-- ## LIKE, GLOB, BETWEEN
UPDATE cte SET v = 'like' WHERE v LIKE 'LO%' AND id BETWEEN 2 AND 6;
UPDATE cte SET v = 'glob' WHERE v GLOB 'l*w';

-- ## VALUES as a statement
VALUES (1, 2), (3, 4);

-- ## EXPLAIN changes nothing
EXPLAIN DELETE FROM cte;
EXPLAIN QUERY PLAN UPDATE cte SET v = 1;

-- # Session values

-- setup
CREATE TABLE ses(id INTEGER PRIMARY KEY, v);

-- ## last_insert_rowid() in a write
INSERT INTO ses(v) VALUES ('a');
INSERT INTO ses(v) VALUES (last_insert_rowid());

-- ## changes() and total_changes() in a write
UPDATE ses SET v = v || '.';
INSERT INTO ses(v) VALUES (changes());

-- # Size
-- large

-- ## 200 columns
CREATE TABLE siz_wide(id INTEGER PRIMARY KEY, {1..199: c# DEFAULT #});
INSERT INTO siz_wide(id) VALUES (1), (2);
UPDATE siz_wide SET c150 = 'changed', c199 = NULL WHERE id = 2;
ALTER TABLE siz_wide ADD COLUMN extra DEFAULT 'e';

-- ## a row of 200 values
INSERT INTO siz_wide VALUES (3000, {1..200: #});

-- ## 1,500 rows in one statement
CREATE TABLE siz_1500(id INTEGER PRIMARY KEY, v);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) INSERT INTO siz_1500 SELECT i, 'row ' || i FROM n;
UPDATE siz_1500 SET v = v || '!' WHERE id % 3 = 0;
DELETE FROM siz_1500 WHERE id % 7 = 0;

-- ## 100,000 rows in one transaction
CREATE TABLE siz_many(id INTEGER PRIMARY KEY, v, w);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) INSERT INTO siz_many SELECT i, i * 7 % 1000, 'text of row ' || i FROM n;

-- ## every one of 100,000 keys changed in one statement
UPDATE siz_many SET id = id + 1000000 WHERE id % 2 = 0;

-- ## a value of 50 MB
CREATE TABLE siz_big(id INTEGER PRIMARY KEY, v);
INSERT INTO siz_big VALUES (1, zeroblob(50000000));

-- ## a text of 50 MB
INSERT INTO siz_big VALUES (2, hex(zeroblob(25000000)));

-- ## tables and indexes made one after the other
CREATE TABLE siz_t1(a, b);
CREATE TABLE siz_t2(a, b);
CREATE INDEX siz_i1 ON siz_t1(a);
CREATE INDEX siz_i2 ON siz_t2(b);
INSERT INTO siz_t1 VALUES (1, 1);
INSERT INTO siz_t2 SELECT * FROM siz_t1;
