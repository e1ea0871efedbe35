-- Statement forms that do not pass the statement gate, each with its reason.
--
-- The format is that of must.sql, with
--   -- expect: refused REASON     the next statement is refused with this word
-- Every reason of the gate stands here at least once (but `statement`, which is what a
-- statement kind gets that the parser learns one day). Nothing that is refused may leave a
-- trace: the databases are compared after each form too.

-- # Rows that would be evicted uncaptured

-- setup
CREATE TABLE ref(id INTEGER PRIMARY KEY, u UNIQUE, v);
INSERT INTO ref VALUES (1, 'a', 1), (2, 'b', 2);
CREATE TABLE ref_other(id INTEGER PRIMARY KEY, x);

-- ## UPDATE OR REPLACE
-- expect: refused update_or_replace
UPDATE OR REPLACE ref SET u = 'a' WHERE id = 2;

-- ## UPDATE OR REPLACE with a CTE, and with FROM
-- expect: refused update_or_replace
WITH x AS (SELECT 1) UPDATE OR REPLACE ref SET u = 'a' WHERE id = 2;
-- expect: refused update_or_replace
UPDATE OR REPLACE ref SET u = ref_other.x FROM ref_other WHERE ref_other.id = ref.id;

-- ## UPDATE OR REPLACE in a trigger
-- expect: refused update_or_replace
CREATE TRIGGER ref_t AFTER INSERT ON ref_other BEGIN UPDATE OR REPLACE ref SET u = 'a'; END;

-- ## a UNIQUE column declared ON CONFLICT REPLACE
-- expect: refused on_conflict_replace
CREATE TABLE ref_bad(id INTEGER PRIMARY KEY, u UNIQUE ON CONFLICT REPLACE);

-- ## a key declared ON CONFLICT REPLACE
-- expect: refused on_conflict_replace
CREATE TABLE ref_bad(id INTEGER PRIMARY KEY ON CONFLICT REPLACE);

-- ## a table constraint declared ON CONFLICT REPLACE
-- expect: refused on_conflict_replace
CREATE TABLE ref_bad(a, b, UNIQUE (a, b) ON CONFLICT REPLACE);

-- ## REPLACE into a table whose trigger updates
CREATE TABLE ref_fires(id INTEGER PRIMARY KEY, v);
CREATE TRIGGER ref_fires_ai AFTER INSERT ON ref_fires BEGIN UPDATE ref SET v = v + 1; END;
-- expect: refused replace_fires_update
REPLACE INTO ref_fires VALUES (1, 1);
-- expect: refused replace_fires_update
INSERT OR REPLACE INTO ref_fires VALUES (1, 1);

-- ## REPLACE into a table whose triggers reach one that updates
CREATE TABLE ref_reach(id INTEGER PRIMARY KEY);
CREATE TRIGGER ref_reach_ai AFTER INSERT ON ref_reach BEGIN INSERT INTO ref_fires(v) VALUES (1); END;
-- expect: refused replace_fires_update
REPLACE INTO ref_reach VALUES (1);

-- ## a trigger that would make a REPLACE in another trigger evict
CREATE TABLE ref_body(id INTEGER PRIMARY KEY);
-- expect: refused replace_fires_update
CREATE TRIGGER ref_body_ai AFTER INSERT ON ref_body BEGIN INSERT OR REPLACE INTO ref_fires VALUES (1, 1); END;

-- # Names that are not the client's

-- ## internal tables: reading, writing, making, dropping
-- expect: refused internal_table
SELECT * FROM turso_cdc;
-- expect: refused internal_table
DELETE FROM turso_cdc;
-- expect: refused internal_table
UPDATE "TURSO_CDC" SET id = 1;
-- expect: refused internal_table
INSERT INTO _tidegate_ddl VALUES (1, 'x');
-- expect: refused internal_table
DROP TABLE _tidegate_meta;
-- expect: refused internal_table
CREATE TABLE _tidegate_mine(x);
-- expect: refused internal_table
CREATE VIEW int_v AS SELECT * FROM _tidegate_history;
-- expect: refused internal_table
CREATE TRIGGER int_t AFTER INSERT ON turso_cdc BEGIN SELECT 1; END;
-- expect: refused internal_table
SELECT (SELECT max(change_id) FROM turso_cdc);
-- expect: refused internal_table
WITH x AS (SELECT * FROM __turso_internal_types) SELECT * FROM x;

-- ## writing to the schema table
-- expect: refused schema_table_write
DELETE FROM sqlite_schema;
-- expect: refused schema_table_write
UPDATE sqlite_master SET sql = '';

-- ## the schema table in a view or trigger
-- expect: refused schema_table_in_schema
CREATE VIEW int_names AS SELECT name FROM sqlite_schema;

-- ## writing to sqlite_sequence in a form that could reach its own row
-- expect: refused sequence_table_write
INSERT INTO sqlite_sequence SELECT 'x', 1;

-- ## other schemas
-- expect: refused other_schema
SELECT * FROM temp.t;
-- expect: refused other_schema
CREATE TABLE aux.t(x);

-- # Other databases and files

-- ## TEMP tables, views and triggers
-- expect: refused temp
CREATE TEMP TABLE tmp(x);
-- expect: refused temp
CREATE TEMPORARY VIEW tmp AS SELECT 1;
-- expect: refused temp
CREATE TEMP TABLE tmp AS SELECT 1;

-- ## ATTACH and DETACH
-- expect: refused attach
ATTACH 'other.db' AS other;
-- expect: refused attach
ATTACH DATABASE ':memory:' AS other;
-- expect: refused attach
DETACH other;

-- ## VACUUM and VACUUM INTO
-- expect: refused vacuum
VACUUM;
-- expect: refused vacuum
VACUUM INTO '/tmp/copy.db';

-- ## load_extension
-- expect: refused function
SELECT load_extension('evil.so');

-- # Statements that would change nodes differently

-- setup
CREATE TABLE dif(id INTEGER PRIMARY KEY, a, b);

-- ## ANALYZE
-- expect: refused analyze
ANALYZE;
-- expect: refused analyze
ANALYZE dif;

-- ## functions that write or belong to a connection
-- expect: refused function
SELECT nextval('s');
-- expect: refused function
SELECT setval('s', 5);
-- expect: refused function
CREATE VIEW dif_v AS SELECT nextval('s');
-- expect: refused function
INSERT INTO dif(a) VALUES (nextval('s'));

-- ## session functions in the schema
-- expect: refused session_value_in_schema
CREATE TABLE dif_bad(x DEFAULT (last_insert_rowid()));
-- expect: refused session_value_in_schema
CREATE VIEW dif_bad AS SELECT changes();

-- ## ALTER COLUMN
-- expect: refused alter_column
ALTER TABLE dif ALTER COLUMN a TO a TEXT;

-- ## EXPLAIN of schema statements
-- expect: refused explain_schema
EXPLAIN CREATE TABLE dif_x(a);
-- expect: refused explain_schema
EXPLAIN ALTER TABLE dif ADD COLUMN c;

-- ## settings of the server
-- expect: refused pragma_setting
PRAGMA journal_mode = 'mvcc';
-- expect: refused pragma_setting
PRAGMA journal_mode = DELETE;
-- expect: refused pragma_setting
PRAGMA synchronous = OFF;
-- expect: refused pragma_setting
PRAGMA capture_data_changes_conn('off');
-- expect: refused pragma_setting
PRAGMA unstable_capture_data_changes_conn('off');
-- expect: refused pragma_setting
PRAGMA query_only = 1;
-- expect: refused pragma_setting
PRAGMA wal_checkpoint(TRUNCATE);
-- expect: refused pragma_setting
PRAGMA page_size = 8192;

-- ## settings that change what statements mean
-- expect: refused pragma_semantics
PRAGMA ignore_check_constraints = 1;
-- expect: refused pragma_semantics
PRAGMA writable_schema = 1;
-- expect: refused pragma_semantics
PRAGMA defer_foreign_keys = ON;
-- expect: refused pragma_semantics
PRAGMA recursive_triggers = ON;

-- ## PRAGMAs that nobody knows
-- expect: refused pragma_unknown
PRAGMA no_such_setting = 1;
-- expect: refused pragma_unknown
PRAGMA forein_keys = ON;

-- # What the engine's own format cannot replicate

-- ## WITHOUT ROWID
-- expect: refused without_rowid
CREATE TABLE fmt(a PRIMARY KEY) WITHOUT ROWID;

-- ## generated columns
-- expect: refused generated_column
CREATE TABLE fmt(a, b GENERATED ALWAYS AS (a + 1) VIRTUAL);
-- expect: refused generated_column
CREATE TABLE fmt(a, b AS (a + 1) STORED);

-- ## virtual tables
-- expect: refused virtual_table
CREATE VIRTUAL TABLE fmt USING fts5(body);
-- expect: refused virtual_table
CREATE VIRTUAL TABLE fmt USING rtree(id, a, b);

-- ## materialised views
-- expect: refused materialized_view
CREATE MATERIALIZED VIEW fmt AS SELECT 1;

-- ## types of one's own
-- expect: refused custom_type
CREATE TYPE fmt BASE integer ENCODE value DECODE value;

-- ## sequence objects
-- expect: refused sequence
CREATE SEQUENCE fmt;

-- ## index modules
CREATE TABLE fmt_i(a, b);
-- expect: refused index_method
CREATE INDEX fmt_x ON fmt_i USING fts (a);
-- expect: refused optimize_index
OPTIMIZE INDEX;

-- ## INSTEAD OF triggers
CREATE VIEW fmt_view AS SELECT a FROM fmt_i;
-- expect: refused instead_of_trigger
CREATE TRIGGER fmt_t INSTEAD OF INSERT ON fmt_view BEGIN INSERT INTO fmt_i(a) VALUES (new.a); END;

-- ## a table that hides its row id
-- expect: refused rowid_shadowed
CREATE TABLE fmt(rowid, oid, _rowid_);

-- ## table-valued functions outside the list
-- expect: refused table_function
SELECT * FROM pragma_wal_checkpoint;

-- ## parameters in CREATE TABLE AS
-- expect: refused create_as_parameters
CREATE TABLE fmt AS SELECT ? AS a;

-- ## brackets that may be a subscript
-- expect: refused brackets
SELECT a['x'] FROM fmt_i;

-- # Limits

-- ## nesting
-- expect: refused nesting
SELECT {5000*(}1{5000*)};

-- ## long compounds
-- expect: refused compound_terms
SELECT 1{5000* UNION ALL SELECT 1};

-- ## many SELECTs
-- expect: refused selects
SELECT {1000*(SELECT 1) + }1;

-- ## many tables in WITH
-- expect: refused with_tables
WITH {1..500: c# AS (VALUES (1))} SELECT 1;

-- ## many ON CONFLICT clauses
-- expect: refused upsert_clauses
INSERT INTO ref VALUES (1, 1, 1) {10000*ON CONFLICT (id) DO NOTHING };

-- ## many columns
-- expect: refused columns
CREATE TABLE lim({1..10100: c#});

-- ## views that multiply
-- expect: refused expansion
WITH c0 AS (SELECT 1 FROM ref), {1..30: c# AS (SELECT 1 FROM c@ a, c@ b)} SELECT * FROM c30;
