-- SQL that SQLite has and the engine of this release does not: errors, listed in docs/sql.md.
-- A form that begins to work makes the conformance suite fail, so that it moves to must.sql.
-- The format is that of must.sql.

-- # Not in the engine

-- setup
CREATE TABLE lck(id INTEGER PRIMARY KEY, a, b);
INSERT INTO lck VALUES (1, 1, 1), (2, 2, 2);
CREATE TABLE Lcap(id INTEGER PRIMARY KEY, a);
INSERT INTO Lcap VALUES (1, 1);

-- ## DELETE … LIMIT
-- expect: error SQLITE_ERROR
DELETE FROM lck LIMIT 1;

-- ## UPDATE … LIMIT
-- expect: error SQLITE_ERROR
UPDATE lck SET a = 1 LIMIT 1;

-- ## ALTER TABLE … ADD COLUMN with UNIQUE or PRIMARY KEY (as in SQLite)
-- expect: error SQLITE_ERROR
ALTER TABLE lck ADD COLUMN u UNIQUE;
-- expect: error SQLITE_ERROR
ALTER TABLE lck ADD COLUMN p PRIMARY KEY;

-- ## A subquery that names the table being changed, when that name or its alias was written with capitals after UPDATE or DELETE FROM (write it there in lower case; names are the same in any case)
-- expect: error SQLITE_ERROR
UPDATE Lcap SET a = (SELECT max(b) FROM lck WHERE lck.id = Lcap.id);
-- expect: error SQLITE_ERROR
DELETE FROM Lcap WHERE EXISTS (SELECT 1 FROM lck WHERE lck.id = Lcap.id);
-- expect: error SQLITE_ERROR
UPDATE Lcap AS L SET a = (SELECT max(b) FROM lck WHERE lck.id = L.id);
