//! The rules of the statement gate, one sentence each.

use tidegate_engine::Error;
use tidegate_engine::statement_gate::{
    BeginKind, DdlInfo, HeaderField, Inspected, Kind, Limits, SchemaFacts, SessionValues,
    bind_session_values, inspect, split,
};

/// The facts of a schema given as statements.
fn schema(statements: &[&str]) -> SchemaFacts {
    SchemaFacts::from_texts(statements.iter().map(|s| (s.to_string(), s.to_string())))
}

fn pass_with(facts: &SchemaFacts, sql: &str) -> Inspected {
    match inspect(sql, facts, &Limits::default()) {
        Ok(inspected) => inspected,
        Err(error) => panic!("{sql}\n  should pass, and is refused: {error}"),
    }
}

fn pass(sql: &str) -> Inspected {
    pass_with(&SchemaFacts::default(), sql)
}

fn error_with(facts: &SchemaFacts, sql: &str) -> Error {
    match inspect(sql, facts, &Limits::default()) {
        Ok(inspected) => panic!("{sql}\n  should be refused, and passes as {inspected:?}"),
        Err(error) => error,
    }
}

/// The reason for which a statement is refused.
fn reason_with(facts: &SchemaFacts, sql: &str) -> &'static str {
    match error_with(facts, sql) {
        Error::Refused { reason, .. } => reason,
        other => panic!("{sql}\n  should be refused, and fails: {other}"),
    }
}

fn reason(sql: &str) -> &'static str {
    reason_with(&SchemaFacts::default(), sql)
}

/// The message of an error in the statement itself.
fn complaint(sql: &str) -> String {
    match error_with(&SchemaFacts::default(), sql) {
        Error::Sql { message, .. } => message,
        other => panic!("{sql}\n  should fail as SQL, and: {other}"),
    }
}

fn kind(sql: &str) -> Kind {
    pass(sql).kind
}

fn is_write(sql: &str) -> bool {
    matches!(kind(sql), Kind::Write(_))
}

#[test]
fn statements_are_told_apart() {
    assert_eq!(kind("SELECT 1"), Kind::Read);
    assert_eq!(kind("VALUES (1), (2)"), Kind::Read);
    assert_eq!(kind("WITH a AS (SELECT 1) SELECT * FROM a"), Kind::Read);
    assert!(is_write("INSERT INTO t VALUES (1)"));
    assert!(is_write("REPLACE INTO t VALUES (1)"));
    assert!(is_write(
        "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a"
    ));
    assert!(is_write("UPDATE t SET a = 1 WHERE b = 2 RETURNING *"));
    assert!(is_write("DELETE FROM t"));
    assert_eq!(kind("CREATE TABLE t(a)"), Kind::Ddl(DdlInfo::Logged));
    assert_eq!(kind("DROP TABLE IF EXISTS t"), Kind::Ddl(DdlInfo::Logged));
    assert_eq!(kind("ALTER TABLE t ADD b"), Kind::Ddl(DdlInfo::Logged));
    let trigger = "CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT 1; END";
    assert_eq!(kind(trigger), Kind::Ddl(DdlInfo::Trigger));
    assert_eq!(kind("DROP TRIGGER r"), Kind::Ddl(DdlInfo::Trigger));
}

#[test]
fn a_write_says_its_table_and_whether_it_returns_rows() {
    let Kind::Write(info) = kind("INSERT INTO main.\"My t\" VALUES (1) RETURNING a") else {
        panic!("a write");
    };
    assert_eq!(info.table, "My t");
    assert!(info.returning && !info.deferred_keys);
}

#[test]
fn the_text_that_runs_is_the_statement_without_its_surroundings() {
    assert_eq!(pass("  -- hello\n SELECT 1 ; -- bye").sql, "SELECT 1");
    assert_eq!(pass("SELECT ';' ;;").sql, "SELECT ';'");
    assert_eq!(pass(" ; /* nothing */ ").kind, Kind::Empty);
    assert_eq!(pass("").kind, Kind::Empty);
    assert!(complaint("SELECT 1; SELECT 2").contains("more than one statement"));
}

#[test]
fn every_form_of_begin_becomes_one_that_the_engine_takes() {
    let begin = |sql: &str| match pass(sql) {
        Inspected {
            kind: Kind::Begin(kind),
            sql,
            ..
        } => (kind, sql),
        other => panic!("{sql}: {other:?}"),
    };
    let deferred = (BeginKind::Deferred, "BEGIN".to_owned());
    let immediate = (BeginKind::Immediate, "BEGIN IMMEDIATE".to_owned());
    let read_only = (BeginKind::ReadOnly, "BEGIN".to_owned());
    assert_eq!(begin("BEGIN"), deferred);
    assert_eq!(begin("begin transaction"), deferred);
    assert_eq!(begin("BEGIN DEFERRED TRANSACTION"), deferred);
    assert_eq!(begin("BEGIN IMMEDIATE"), immediate);
    assert_eq!(begin("BEGIN EXCLUSIVE TRANSACTION"), immediate);
    assert_eq!(begin("BEGIN CONCURRENT"), immediate);
    assert_eq!(begin("BEGIN READONLY"), read_only);
    assert_eq!(begin("begin Transaction ReadOnly;"), read_only);
}

#[test]
fn transactions_end_and_savepoints_nest() {
    assert_eq!(kind("COMMIT"), Kind::Commit);
    assert_eq!(kind("END TRANSACTION"), Kind::Commit);
    assert_eq!(kind("ROLLBACK"), Kind::Rollback);
    assert_eq!(kind("SAVEPOINT a"), Kind::Savepoint("a".into()));
    assert_eq!(
        kind("RELEASE SAVEPOINT \"a b\""),
        Kind::Release("a b".into())
    );
    assert_eq!(kind("ROLLBACK TO a"), Kind::RollbackTo("a".into()));
    assert_eq!(reason("SAVEPOINT _tidegate_1"), "internal_table");
}

#[test]
fn reindex_runs_and_writes_no_row() {
    assert!(is_write("REINDEX"));
    assert_eq!(reason("REINDEX turso_cdc"), "internal_table");
}

#[test]
fn explain_reads_what_it_explains() {
    assert_eq!(kind("EXPLAIN QUERY PLAN SELECT 1"), Kind::Read);
    assert_eq!(kind("EXPLAIN DELETE FROM t"), Kind::Read);
    assert_eq!(reason("EXPLAIN DROP TABLE t"), "explain_schema");
    assert_eq!(reason("EXPLAIN DELETE FROM turso_cdc"), "internal_table");
}

#[test]
fn what_evicts_rows_uncaptured_is_refused() {
    assert_eq!(reason("UPDATE OR REPLACE t SET a = 1"), "update_or_replace");
    assert!(is_write("UPDATE OR IGNORE t SET a = 1"));
    for table in [
        "CREATE TABLE t(a UNIQUE ON CONFLICT REPLACE)",
        "CREATE TABLE t(a INTEGER PRIMARY KEY ON CONFLICT REPLACE)",
        "CREATE TABLE t(a, b, UNIQUE(a, b) ON CONFLICT REPLACE)",
        "CREATE TABLE t(a, PRIMARY KEY(a) ON CONFLICT REPLACE)",
    ] {
        assert_eq!(reason(table), "on_conflict_replace", "{table}");
    }
    pass("CREATE TABLE t(a NOT NULL ON CONFLICT REPLACE DEFAULT 1)");
    pass("CREATE TABLE t(a UNIQUE ON CONFLICT IGNORE)");
    let trigger = "CREATE TRIGGER r AFTER INSERT ON t BEGIN UPDATE OR REPLACE u SET a = new.a; END";
    assert_eq!(reason(trigger), "update_or_replace");
}

#[test]
fn replace_is_refused_where_a_trigger_within_reach_updates() {
    let tables = [
        "CREATE TABLE a(x)",
        "CREATE TABLE b(y UNIQUE)",
        "CREATE TABLE c(z)",
    ];
    let direct = "CREATE TRIGGER r AFTER INSERT ON a BEGIN UPDATE b SET y = new.x; END";
    let ignoring = "CREATE TRIGGER r BEFORE INSERT ON a BEGIN UPDATE OR IGNORE b SET y = 1; END";
    for trigger in [direct, ignoring] {
        let facts = schema(&[&tables[..], &[trigger]].concat());
        assert_eq!(
            reason_with(&facts, "REPLACE INTO a VALUES (1)"),
            "replace_fires_update"
        );
        pass_with(&facts, "INSERT INTO a VALUES (1)");
        pass_with(
            &facts,
            "INSERT INTO a VALUES (1) ON CONFLICT(x) DO UPDATE SET x = 2",
        );
        pass_with(&facts, "INSERT OR REPLACE INTO b VALUES (1)");
    }
    let nested = schema(
        &[
            &tables[..],
            &[
                "CREATE TRIGGER r1 AFTER INSERT ON a BEGIN INSERT INTO c VALUES (new.x); END",
                "CREATE TRIGGER r2 AFTER INSERT ON c BEGIN UPDATE b SET y = new.z; END",
            ],
        ]
        .concat(),
    );
    assert_eq!(
        reason_with(&nested, "INSERT OR REPLACE INTO a VALUES (1)"),
        "replace_fires_update"
    );
}

#[test]
fn replace_is_refused_where_a_cascade_reaches_a_trigger_that_updates() {
    let facts = schema(&[
        "CREATE TABLE p(id INTEGER PRIMARY KEY)",
        "CREATE TABLE c(id INTEGER PRIMARY KEY, p REFERENCES p ON DELETE CASCADE)",
        "CREATE TABLE log(n UNIQUE)",
        "CREATE TRIGGER r AFTER DELETE ON c BEGIN UPDATE log SET n = 1; END",
    ]);
    assert_eq!(
        reason_with(&facts, "REPLACE INTO p VALUES (1)"),
        "replace_fires_update"
    );
    pass_with(&facts, "DELETE FROM p");
}

#[test]
fn a_trigger_or_rename_that_makes_a_body_unsafe_is_refused() {
    let tables = [
        "CREATE TABLE a(x)",
        "CREATE TABLE b(y UNIQUE)",
        "CREATE TABLE c(z)",
    ];
    let replacing = "CREATE TRIGGER r1 AFTER INSERT ON a BEGIN REPLACE INTO c VALUES (1); END";
    let updating = "CREATE TRIGGER r2 AFTER INSERT ON c BEGIN UPDATE b SET y = 1; END";
    let facts = schema(&[&tables[..], &[replacing]].concat());
    assert_eq!(reason_with(&facts, updating), "replace_fires_update");
    let facts = schema(&[&tables[..], &[updating]].concat());
    assert_eq!(reason_with(&facts, replacing), "replace_fires_update");
    let elsewhere = "CREATE TRIGGER r1 AFTER INSERT ON a BEGIN REPLACE INTO d VALUES (1); END";
    let facts = schema(&[&tables[..], &[updating, elsewhere]].concat());
    assert_eq!(
        reason_with(&facts, "ALTER TABLE c RENAME TO d"),
        "replace_fires_update"
    );
}

#[test]
fn internal_tables_cannot_be_named_anywhere() {
    for sql in [
        "SELECT * FROM turso_cdc",
        "SELECT * FROM TURSO_CDC AS x",
        "SELECT * FROM t WHERE a IN (SELECT 1 FROM _tidegate_meta)",
        "SELECT a IN _tidegate_ddl FROM t",
        "SELECT (SELECT max(id) FROM main.turso_cdc_version)",
        "SELECT * FROM t JOIN (SELECT * FROM __turso_internal_seq_x) y",
        "WITH x AS (SELECT * FROM turso_cdc) SELECT * FROM x",
        "WITH turso_cdc AS (SELECT 1) SELECT * FROM turso_cdc",
        "INSERT INTO turso_cdc VALUES (1)",
        "INSERT INTO t SELECT * FROM turso_cdc",
        "UPDATE turso_cdc SET id = 1",
        "UPDATE t SET a = 1 FROM turso_cdc",
        "DELETE FROM \"turso_cdc\"",
        "DELETE FROM [turso_cdc]",
        "DROP TABLE turso_cdc",
        "ALTER TABLE turso_cdc RENAME TO x",
        "ALTER TABLE t RENAME TO _tidegate_x",
        "CREATE TABLE _tidegate_x(a)",
        "CREATE TABLE t(a REFERENCES turso_cdc)",
        "CREATE TABLE t(a, FOREIGN KEY(a) REFERENCES turso_cdc(id))",
        "CREATE INDEX i ON turso_cdc(id)",
        "CREATE INDEX _tidegate_i ON t(a)",
        "CREATE VIEW v AS SELECT * FROM turso_cdc",
        "CREATE TRIGGER r AFTER INSERT ON turso_cdc BEGIN SELECT 1; END",
        "CREATE TRIGGER r AFTER INSERT ON t BEGIN DELETE FROM turso_cdc; END",
        "CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT * FROM turso_cdc; END",
        "CREATE TABLE t AS SELECT * FROM turso_cdc",
        "PRAGMA table_info(turso_cdc)",
        "PRAGMA index_list('_tidegate_meta')",
        "SELECT * FROM pragma_table_info('turso_cdc')",
    ] {
        assert_eq!(reason(sql), "internal_table", "{sql}");
    }
    pass("SELECT 'turso_cdc', turso FROM tidegate");
}

#[test]
fn only_the_main_schema_exists() {
    pass("SELECT main.t.a FROM main.t");
    assert_eq!(reason("SELECT * FROM temp.t"), "other_schema");
    assert_eq!(reason("INSERT INTO aux.t VALUES (1)"), "other_schema");
    assert_eq!(reason("CREATE TABLE other.t(a)"), "other_schema");
    assert_eq!(reason("DROP INDEX temp.i"), "other_schema");
    assert_eq!(reason("CREATE TEMP TABLE t(a)"), "temp");
    assert_eq!(reason("CREATE TABLE temp.t(a)"), "temp");
    assert_eq!(reason("CREATE TEMPORARY VIEW v AS SELECT 1"), "temp");
    assert_eq!(
        reason("CREATE TEMP TRIGGER r AFTER INSERT ON t BEGIN SELECT 1; END"),
        "temp"
    );
}

#[test]
fn what_the_engine_does_not_replicate_is_refused_with_its_reason() {
    for (sql, expected) in [
        ("ATTACH 'x' AS y", "attach"),
        ("DETACH y", "attach"),
        ("VACUUM", "vacuum"),
        ("VACUUM INTO '/tmp/x'", "vacuum"),
        ("ANALYZE", "analyze"),
        (
            "CREATE TABLE t(a PRIMARY KEY) WITHOUT ROWID",
            "without_rowid",
        ),
        ("CREATE TABLE t(a, b AS (a + 1))", "generated_column"),
        (
            "CREATE TABLE t(a, b GENERATED ALWAYS AS (a) STORED)",
            "generated_column",
        ),
        ("CREATE VIRTUAL TABLE t USING fts5(a)", "virtual_table"),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT 1",
            "materialized_view",
        ),
        ("CREATE SEQUENCE s", "sequence"),
        ("CREATE TYPE y BASE text", "custom_type"),
        ("SELECT array[1, 2]", "custom_type"),
        ("SELECT a[1] FROM t", "custom_type"),
        ("CREATE INDEX i ON t USING fts (a)", "index_method"),
        ("CREATE TABLE t(rowid, oid, _rowid_)", "rowid_shadowed"),
        ("ALTER TABLE t ALTER COLUMN a TO b", "alter_column"),
    ] {
        assert_eq!(reason(sql), expected, "{sql}");
    }
    pass("CREATE TABLE t(rowid, oid, x)");
    let view = schema(&["CREATE TABLE t(a)", "CREATE VIEW v AS SELECT * FROM t"]);
    let instead = "CREATE TRIGGER r INSTEAD OF INSERT ON v BEGIN SELECT 1; END";
    assert_eq!(reason_with(&view, instead), "instead_of_trigger");
}

#[test]
fn functions_are_allowed_by_name() {
    pass("SELECT abs(1), random(), datetime('now'), json_extract(a, '$.b'), count(*) FROM t");
    pass("SELECT row_number() OVER (PARTITION BY a ORDER BY b) FROM t");
    for name in [
        "load_extension('x')",
        "setval('s', 1)",
        "nextval('s')",
        "conn_txn_id(1)",
    ] {
        for sql in [
            format!("SELECT {name}"),
            format!("SELECT * FROM t WHERE a = (SELECT {name})"),
            format!("INSERT INTO t VALUES ({name})"),
            format!("INSERT INTO t VALUES (1) ON CONFLICT DO UPDATE SET a = {name}"),
            format!("DELETE FROM t RETURNING {name}"),
            format!("SELECT a FROM t ORDER BY {name}"),
            format!("SELECT sum(a) FILTER (WHERE {name}) FROM t"),
            format!("SELECT sum(a) OVER (ORDER BY {name}) FROM t"),
            format!("SELECT 1 LIMIT {name}"),
            format!("CREATE VIEW v AS SELECT {name}"),
            format!("CREATE TABLE t(a DEFAULT ({name}))"),
            format!("CREATE TABLE t(a CHECK ({name}))"),
            format!("CREATE TABLE t(a, CHECK ({name}))"),
            format!("CREATE INDEX i ON t({name})"),
            format!("CREATE INDEX i ON t(a) WHERE {name}"),
            format!("CREATE TRIGGER r AFTER INSERT ON t WHEN {name} BEGIN SELECT 1; END"),
            format!("CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT {name}; END"),
            format!("CREATE TABLE t AS SELECT {name}"),
        ] {
            assert_eq!(reason(&sql), "function", "{sql}");
        }
    }
    assert_eq!(complaint("SELECT nosuch(1)"), "no such function: nosuch");
    assert_eq!(
        reason("SELECT * FROM pragma_journal_mode('delete')"),
        "table_function"
    );
    assert_eq!(reason("SELECT * FROM sqlite_dbpage()"), "table_function");
    pass("SELECT * FROM json_each('[1]'), generate_series(1, 3)");
}

#[test]
fn session_functions_become_values() {
    let inspected = pass("SELECT last_insert_rowid(), changes() + 1");
    assert!(inspected.uses_session_values);
    let values = SessionValues {
        last_insert_rowid: -7,
        changes: 2,
        total_changes: i64::MIN,
    };
    assert_eq!(
        bind_session_values("SELECT last_insert_rowid(), changes() + 1 FROM t", &values).unwrap(),
        "SELECT (- 7) AS \"last_insert_rowid()\", 2 + 1 AS \"changes() + 1\" FROM t"
    );
    assert_eq!(
        bind_session_values("INSERT INTO t VALUES (?, total_changes(), ?)", &values).unwrap(),
        "INSERT INTO t VALUES (?1, (- 9223372036854775807 - 1), ?2)"
    );
    for sql in [
        "CREATE VIEW v AS SELECT changes()",
        "CREATE TABLE t(a DEFAULT (last_insert_rowid()))",
    ] {
        assert_eq!(reason(sql), "session_value_in_schema", "{sql}");
    }
}

#[test]
fn a_statement_that_reaches_a_trigger_with_session_functions_says_so() {
    let facts = schema(&[
        "CREATE TABLE a(x)",
        "CREATE TABLE b(y)",
        "CREATE TRIGGER r AFTER INSERT ON a BEGIN DELETE FROM b; END",
        "CREATE TRIGGER s AFTER DELETE ON b BEGIN INSERT INTO c VALUES (changes()); END",
    ]);
    assert!(pass_with(&facts, "INSERT INTO a VALUES (1)").touches_session_triggers);
    assert!(!pass_with(&facts, "INSERT INTO b VALUES (1)").touches_session_triggers);
}

#[test]
fn the_schema_table_shows_no_internal_object() {
    let inspected = pass("SELECT name FROM sqlite_master WHERE type = 'table'");
    assert!(inspected.sql.contains("'_tidegate_'"), "{}", inspected.sql);
    assert!(
        inspected
            .sql
            .starts_with("SELECT name FROM sqlite_master WHERE (type = 'table')")
    );
    for sql in [
        "SELECT * FROM main.sqlite_schema AS s, t",
        "SELECT * FROM t LEFT JOIN sqlite_schema ON name = a",
        "SELECT * FROM (t JOIN sqlite_master)",
        "SELECT (SELECT count(*) FROM sqlite_master)",
        "PRAGMA table_list",
        "SELECT * FROM pragma_table_list",
        "SELECT * FROM pragma_table_list()",
        "SELECT * FROM sqlite_sequence",
    ] {
        assert!(pass(sql).sql.contains("'_tidegate_'"), "{sql}");
    }
    let temp = pass("SELECT name FROM sqlite_temp_master").sql;
    assert!(temp.contains("WHERE 0"), "{temp}");
    assert_eq!(reason("DELETE FROM sqlite_master"), "schema_table_write");
    assert_eq!(
        reason("CREATE VIEW v AS SELECT * FROM sqlite_master"),
        "schema_table_in_schema"
    );
}

#[test]
fn sqlite_sequence_can_be_written_where_its_own_row_is_safe() {
    let deleted = pass("DELETE FROM sqlite_sequence").sql;
    assert!(deleted.contains("turso_cdc"), "{deleted}");
    assert!(
        pass("UPDATE sqlite_sequence SET seq = 0")
            .sql
            .contains("turso_cdc")
    );
    pass("INSERT INTO sqlite_sequence VALUES ('t', 5)");
    pass("INSERT INTO sqlite_sequence(seq, name) VALUES (5, 't')");
    assert_eq!(
        reason("INSERT INTO sqlite_sequence VALUES ('turso_cdc', 5)"),
        "internal_table"
    );
    for sql in [
        "INSERT INTO sqlite_sequence VALUES (?, 5)",
        "INSERT INTO sqlite_sequence SELECT name, 1 FROM t",
        "UPDATE sqlite_sequence SET name = 't'",
    ] {
        assert_eq!(reason(sql), "sequence_table_write", "{sql}");
    }
}

#[test]
fn pragmas_read_or_are_refused() {
    for sql in [
        "PRAGMA table_info(t)",
        "PRAGMA main.table_xinfo('t')",
        "PRAGMA index_list(t)",
        "PRAGMA foreign_key_list(t)",
        "PRAGMA user_version",
        "PRAGMA integrity_check",
        "PRAGMA database_list",
        "PRAGMA journal_mode",
        "PRAGMA journal_mode = WAL",
    ] {
        assert_eq!(kind(sql), Kind::Read, "{sql}");
    }
    for sql in [
        "PRAGMA optimize",
        "PRAGMA busy_timeout = 5000",
        "PRAGMA cache_size = -1",
    ] {
        assert_eq!(kind(sql), Kind::Empty, "{sql}");
    }
    for (sql, expected) in [
        ("PRAGMA journal_mode = 'mvcc'", "pragma_setting"),
        ("PRAGMA synchronous = off", "pragma_setting"),
        ("PRAGMA capture_data_changes_conn('off')", "pragma_setting"),
        ("PRAGMA query_only = 1", "pragma_setting"),
        ("PRAGMA page_size = 512", "pragma_setting"),
        ("PRAGMA writable_schema = 1", "pragma_semantics"),
        ("PRAGMA ignore_check_constraints = ON", "pragma_semantics"),
        ("PRAGMA nosuch", "pragma_unknown"),
        ("PRAGMA temp.user_version", "other_schema"),
    ] {
        assert_eq!(reason(sql), expected, "{sql}");
    }
    let header = Kind::HeaderPragma {
        field: HeaderField::UserVersion,
        value: -3,
    };
    assert_eq!(kind("PRAGMA user_version = -3"), header);
    assert_eq!(kind("PRAGMA main.user_version(-3)"), header);
    assert_eq!(kind("PRAGMA foreign_keys"), Kind::ForeignKeys(None));
    assert_eq!(
        kind("PRAGMA foreign_keys = ON"),
        Kind::ForeignKeys(Some(true))
    );
    assert_eq!(
        kind("PRAGMA foreign_keys(0)"),
        Kind::ForeignKeys(Some(false))
    );
}

#[test]
fn create_table_as_becomes_two_statements() {
    let Kind::Ddl(DdlInfo::CreateTableAs {
        table,
        if_not_exists,
        create_empty,
        insert,
    }) = kind("CREATE TABLE IF NOT EXISTS n AS SELECT a+1, b FROM t UNION ALL SELECT 1,2 LIMIT 5")
    else {
        panic!("CREATE TABLE AS");
    };
    assert_eq!((table.as_str(), if_not_exists), ("n", true));
    let select =
        "SELECT a + 1 AS \"a+1\", b FROM t UNION ALL SELECT 1 AS \"1\", 2 AS \"2\" LIMIT 5";
    assert_eq!(
        create_empty,
        format!("CREATE TABLE \"n\" AS SELECT * FROM ({select}) LIMIT 0")
    );
    assert_eq!(insert, format!("INSERT INTO \"n\" {select}"));
    assert_eq!(reason("CREATE TABLE n AS SELECT ?"), "create_as_parameters");
    let copied = pass("CREATE TABLE n AS SELECT name, changes() FROM sqlite_master");
    assert!(copied.sql.contains("'_tidegate_'") && copied.uses_session_values);
}

#[test]
fn a_deferred_key_anywhere_is_told_with_each_write() {
    let facts = schema(&[
        "CREATE TABLE p(id INTEGER PRIMARY KEY)",
        "CREATE TABLE c(p REFERENCES p DEFERRABLE INITIALLY DEFERRED)",
    ]);
    let Kind::Write(info) = pass_with(&facts, "INSERT INTO p VALUES (1)").kind else {
        panic!("a write");
    };
    assert!(info.deferred_keys);
}

#[test]
fn an_existing_schema_is_judged_object_by_object() {
    let facts = schema(&[
        "CREATE TABLE a(x PRIMARY KEY) WITHOUT ROWID",
        "CREATE TABLE b(y UNIQUE ON CONFLICT REPLACE)",
        "CREATE TABLE c(z)",
        "CREATE VIEW v AS SELECT setval('s', 1)",
        "CREATE TRIGGER r AFTER INSERT ON c BEGIN UPDATE OR REPLACE c SET z = 1; END",
        "CREATE nonsense",
    ]);
    let reasons: Vec<_> = facts.objections().iter().map(|o| o.reason).collect();
    assert_eq!(
        reasons,
        [
            "without_rowid",
            "on_conflict_replace",
            "function",
            "update_or_replace",
            "unreadable"
        ]
    );
}

#[test]
fn syntax_errors_read_like_sqlites_and_tell_the_place() {
    assert_eq!(
        complaint("SELECT *\nFRM t"),
        "near \"FRM\": syntax error (line 2, column 1)"
    );
    assert_eq!(complaint("SELECT"), "incomplete input");
    assert!(complaint("SELECT 'abc").starts_with("unrecognized token: \"'abc\""));
    assert!(complaint("SELECT # 1").contains("syntax error"));
    assert!(complaint("nonsense").starts_with("near \"nonsense\": syntax error"));
}

#[test]
fn a_script_is_split_with_trigger_bodies_whole() {
    let script = "CREATE TABLE t(a); -- one\nCREATE TRIGGER r AFTER INSERT ON t BEGIN\n\
        SELECT CASE WHEN 1 THEN 2 END; DELETE FROM t; END; SELECT ';';;";
    let parts = split(script, &Limits::default()).unwrap();
    assert_eq!(parts.len(), 3);
    assert!(parts[1].starts_with("CREATE TRIGGER") && parts[1].ends_with("END"));
    assert_eq!(parts[2], "SELECT ';'");
}

#[test]
fn deep_wide_and_long_statements_never_reach_the_parser() {
    let nested = |n: usize| format!("{}1{}", "SELECT * FROM (".repeat(n), ")".repeat(n));
    assert_eq!(reason(&nested(5_000)), "nesting");
    let union = vec!["SELECT 1"; 5_000].join(" UNION ALL ");
    assert_eq!(reason(&union), "compound_terms");
    let with: Vec<String> = (0..500).map(|i| format!("c{i} AS (VALUES (1))")).collect();
    assert_eq!(
        reason(&format!("WITH {} SELECT 1", with.join(", "))),
        "with_tables"
    );
    let hidden = format!("SELECT x[{}]", nested(5_000));
    assert_eq!(reason(&hidden), "brackets");
    let upserts = "ON CONFLICT (a) DO NOTHING ".repeat(10_000);
    assert_eq!(
        reason(&format!("INSERT INTO t VALUES (1) {upserts}")),
        "upsert_clauses"
    );
    let long = format!("SELECT '{}'", "x".repeat(2 << 20));
    assert!(matches!(
        error_with(&SchemaFacts::default(), &long),
        Error::TooLarge(_)
    ));
    let minus = format!("SELECT {}1", "- ".repeat(100_000));
    assert!(complaint(&minus).contains("too large"));
    assert!(complaint("SELECT ?40000").contains("between ?1 and ?32766"));
    let many = format!("SELECT {}", vec!["?"; 40_000].join(","));
    assert_eq!(complaint(&many), "too many SQL variables");
}

#[test]
fn views_and_with_tables_that_nest_too_deep_together_are_refused() {
    let nest =
        |n: usize, inner: &str| format!("{}{inner}{}", "SELECT * FROM (".repeat(n), ")".repeat(n));
    let view = format!("CREATE VIEW v AS {}", nest(70, "SELECT 1 AS x"));
    let facts = schema(&[view.as_str()]);
    pass_with(&facts, &nest(30, "SELECT * FROM v"));
    assert_eq!(reason_with(&facts, &nest(70, "SELECT * FROM v")), "nesting");
    let with = format!(
        "WITH a AS ({}) SELECT * FROM ({})",
        nest(70, "SELECT 1"),
        nest(70, "SELECT * FROM a")
    );
    assert_eq!(reason(&with), "nesting");
}

#[test]
fn with_tables_and_views_that_multiply_are_refused() {
    let doubling: Vec<String> = (1..30)
        .map(|i| format!("c{i} AS (SELECT 1 FROM c{0} a, c{0} b)", i - 1))
        .collect();
    let sql = format!(
        "WITH c0 AS (SELECT 1 FROM t), {} SELECT * FROM c29",
        doubling.join(", ")
    );
    assert_eq!(reason(&sql), "expansion");
    let mut views = vec!["CREATE VIEW v0 AS SELECT 1 x FROM t".to_owned()];
    views.extend(
        (1..30).map(|i| format!("CREATE VIEW v{i} AS SELECT 1 x FROM v{0} a, v{0} b", i - 1)),
    );
    let views: Vec<&str> = views.iter().map(String::as_str).collect();
    assert_eq!(
        reason_with(&schema(&views), "SELECT * FROM v29"),
        "expansion"
    );
}
