//! What the gate lets through, run on the engine itself.

use std::collections::BTreeSet;

use tidegate_engine::adapter::Connection;
use tidegate_engine::statement_gate::{DdlInfo, Kind, Limits, SchemaFacts, inspect, reference};
use tidegate_engine::{Error, Store, Value};

struct Engine {
    _dir: tempfile::TempDir,
    store: Store,
    writer: Connection,
}

impl Engine {
    fn new(statements: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("d")).unwrap();
        let writer = store.capturing(true).unwrap();
        let mut engine = Self {
            _dir: dir,
            store,
            writer,
        };
        for sql in statements {
            engine.run(sql);
        }
        engine
    }

    fn facts(&mut self) -> SchemaFacts {
        SchemaFacts::read(&mut self.writer).unwrap()
    }

    /// Passes the gate and runs what it gave.
    fn run(&mut self, sql: &str) -> Vec<Vec<Value>> {
        let facts = self.facts();
        let inspected = inspect(sql, &facts, &Limits::default())
            .unwrap_or_else(|error| panic!("{sql}\n  is refused: {error}"));
        let texts = match inspected.kind {
            Kind::Empty => vec![],
            Kind::Ddl(DdlInfo::CreateTableAs {
                create_empty,
                insert,
                ..
            }) => vec![create_empty, insert],
            _ => vec![inspected.sql],
        };
        let mut rows = Vec::new();
        for text in texts {
            rows = self
                .writer
                .query_all(&text, &[])
                .unwrap_or_else(|error| panic!("{sql}\n  runs as {text}\n  and fails: {error}"));
        }
        rows
    }

    fn texts(&mut self, sql: &str) -> Vec<String> {
        let first = |row: Vec<Value>| match row.into_iter().next() {
            Some(Value::Text(text)) => text,
            other => panic!("{sql} gives {other:?}"),
        };
        self.run(sql).into_iter().map(first).collect()
    }
}

/// Runs on a thread whose stack has this many MiB.
fn on_a_stack<T: Send>(mib: usize, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .stack_size(mib << 20)
            .spawn_scoped(scope, work)
            .unwrap()
            .join()
            .unwrap()
    })
}

#[test]
fn every_function_of_the_engine_has_a_rule() {
    let mut engine = Engine::new(&[]);
    let names = engine.texts("SELECT DISTINCT name FROM pragma_function_list");
    assert!(names.len() > 200, "{}", names.len());
    for name in names {
        let sql = format!("SELECT {name}(1)");
        let outcome = inspect(&sql, &SchemaFacts::default(), &Limits::default());
        if let Err(Error::Sql { message, .. }) = outcome {
            assert!(!message.contains("no such function"), "{name} has no rule");
        }
    }
}

#[test]
fn every_pragma_of_the_engine_has_a_rule() {
    let mut engine = Engine::new(&[]);
    let names = engine.writer.query_all("PRAGMA pragma_list", &[]).unwrap();
    assert!(names.len() > 40, "{}", names.len());
    for name in names {
        let Value::Text(name) = &name[0] else {
            panic!("{name:?}");
        };
        let outcome = inspect(
            &format!("PRAGMA {name}"),
            &SchemaFacts::default(),
            &Limits::default(),
        );
        if let Err(Error::Refused { reason, .. }) = outcome {
            assert_ne!(reason, "pragma_unknown", "{name}");
        }
    }
}

#[test]
fn a_fresh_database_looks_empty_to_a_client() {
    let mut engine = Engine::new(&[]);
    for sql in [
        "SELECT name FROM sqlite_master",
        "SELECT name FROM sqlite_schema ORDER BY rowid",
        "SELECT name FROM main.sqlite_master AS m WHERE m.type = 'table' OR 1",
        "SELECT name FROM (SELECT * FROM sqlite_master UNION ALL SELECT * FROM sqlite_temp_master)",
        "SELECT name FROM pragma_table_list WHERE name NOT LIKE 'sqlite_%'",
        "SELECT name FROM sqlite_sequence",
        "SELECT m.name FROM (SELECT 1) LEFT JOIN sqlite_master m ON 1 WHERE m.name IS NOT NULL",
        "WITH all_of_it AS (SELECT name FROM sqlite_master) SELECT * FROM all_of_it",
    ] {
        assert_eq!(engine.texts(sql), Vec::<String>::new(), "{sql}");
    }
    let listed = engine.run("PRAGMA table_list");
    let internal = listed
        .iter()
        .any(|row| format!("{row:?}").contains("tidegate"));
    assert!(!internal, "{listed:?}");
    assert_eq!(
        engine.run("PRAGMA database_list"),
        [[
            Value::Integer(0),
            Value::Text("main".into()),
            Value::Text(String::new())
        ]]
    );
}

#[test]
fn a_clients_own_objects_are_all_it_sees() {
    let mut engine = Engine::new(&[
        "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, a UNIQUE)",
        "CREATE INDEX i ON t(a)",
        "CREATE VIEW v AS SELECT a FROM t",
        "CREATE TRIGGER r AFTER INSERT ON t BEGIN DELETE FROM t WHERE a = 9; END",
        "INSERT INTO t(a) VALUES (1)",
    ]);
    assert_eq!(
        engine.texts("SELECT name FROM sqlite_master ORDER BY name"),
        [
            "i",
            "r",
            "sqlite_autoindex_t_1",
            "sqlite_sequence",
            "t",
            "v"
        ]
    );
    assert_eq!(engine.texts("SELECT name FROM sqlite_sequence"), ["t"]);
    assert_eq!(
        engine
            .texts("SELECT tbl_name FROM sqlite_schema WHERE type = 'index'")
            .len(),
        2
    );
    let columns = "SELECT c.name FROM sqlite_master m, pragma_table_info(m.name) c \
        WHERE m.type = 'table' AND m.name = 't' ORDER BY c.cid";
    assert_eq!(engine.texts(columns), ["id", "a"]);
    let outer = "SELECT m.name FROM t LEFT JOIN sqlite_master m ON m.type = 'view'";
    assert_eq!(engine.texts(outer), ["v"]);
}

#[test]
fn sequences_are_reset_without_touching_the_log() {
    let mut engine = Engine::new(&[
        "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT)",
        "INSERT INTO t DEFAULT VALUES",
        "DELETE FROM t",
        "DELETE FROM sqlite_sequence",
        "INSERT INTO t DEFAULT VALUES",
    ]);
    assert_eq!(engine.run("SELECT id FROM t"), [[Value::Integer(1)]]);
    engine.run("UPDATE sqlite_sequence SET seq = 40");
    engine.run("INSERT INTO t DEFAULT VALUES");
    assert_eq!(engine.run("SELECT max(id) FROM t"), [[Value::Integer(41)]]);
    let head = engine
        .writer
        .query_integer("SELECT max(change_id) FROM turso_cdc", &[]);
    assert!(
        head.unwrap().unwrap() < 100,
        "the log's ids go on where they were"
    );
}

#[test]
fn create_table_as_gives_the_table_that_the_engine_would_make() {
    let source =
        "CREATE TABLE s(id INTEGER PRIMARY KEY, v VARCHAR(9) COLLATE NOCASE, r REAL, b BLOB)";
    for (i, select) in [
        "SELECT * FROM s",
        "SELECT id+1, v, upper(v), r*2 FROM s ORDER BY id DESC LIMIT 2",
        "SELECT id, id, v AS \"a b\" FROM s",
        "SELECT v FROM s UNION SELECT r FROM s",
        "WITH q(a, b) AS (SELECT id, v FROM s) SELECT * FROM q",
        "VALUES (1, 'x'), (2, 'y')",
        "SELECT CAST(v AS INTEGER) AS c, sum(r) FROM s GROUP BY 1",
    ]
    .iter()
    .enumerate()
    {
        let mut engine = Engine::new(&[
            source,
            "INSERT INTO s VALUES (1,'1',1,1),(2,'b',2.5,x'00'),(3,'c',3,3)",
        ]);
        engine.run(&format!("CREATE TABLE ours AS {select}"));
        engine
            .writer
            .execute(&format!("CREATE TABLE theirs AS {select}"), &[])
            .unwrap();
        let columns = |engine: &mut Engine, name: &str| {
            let sql = format!("SELECT sql FROM sqlite_schema WHERE name = '{name}'");
            let text = engine.texts(&sql).remove(0);
            text.split_once('(').unwrap().1.to_owned()
        };
        assert_eq!(
            columns(&mut engine, "ours"),
            columns(&mut engine, "theirs"),
            "{i}"
        );
        let rows = |engine: &mut Engine, name: &str| {
            engine.run(&format!("SELECT rowid, * FROM {name} ORDER BY rowid"))
        };
        assert_eq!(
            rows(&mut engine, "ours"),
            rows(&mut engine, "theirs"),
            "{i}"
        );
    }
}

#[test]
fn orphans_are_found_although_the_engine_cannot() {
    let mut engine = Engine::new(&[
        "CREATE TABLE p(id INTEGER PRIMARY KEY, a, b, UNIQUE (a, b))",
        "CREATE TABLE c(x REFERENCES p, y, z, w REFERENCES gone, \
         FOREIGN KEY (y, z) REFERENCES p(a, b))",
        "INSERT INTO p VALUES (1, 'k', 2)",
    ]);
    engine
        .writer
        .execute("PRAGMA foreign_keys = 0", &[])
        .unwrap();
    engine.run("INSERT INTO c VALUES (1,'k',2,NULL), (7,'k',3,NULL), (NULL,NULL,9,5)");
    // In Debug's order, which is the order of parent and then of rows.
    let mut found = engine.run("PRAGMA foreign_key_check");
    found.sort_by_key(|row| format!("{row:?}"));
    let text = |s: &str| Value::Text(s.into());
    let row = |rowid, parent, fkid| {
        vec![
            text("c"),
            Value::Integer(rowid),
            text(parent),
            Value::Integer(fkid),
        ]
    };
    assert_eq!(found, [row(2, "p", 0), row(2, "p", 2), row(3, "gone", 1)]);
    assert!(engine.run("PRAGMA foreign_key_check(p)").is_empty());
}

#[test]
fn a_write_is_explained_and_not_done() {
    let mut engine = Engine::new(&["CREATE TABLE t(a)"]);
    assert!(!engine.run("EXPLAIN INSERT INTO t VALUES (1)").is_empty());
    assert!(
        !engine
            .run("EXPLAIN QUERY PLAN SELECT * FROM sqlite_master")
            .is_empty()
    );
    assert_eq!(engine.run("SELECT count(*) FROM t"), [[Value::Integer(0)]]);
}

#[test]
fn what_is_just_within_the_limits_does_not_overflow_a_stack() {
    let engine = Engine::new(&["CREATE TABLE t(a, b)"]);
    let limits = Limits::default();
    let nested =
        |n: usize, inner: &str| format!("{}{inner}{}", "SELECT * FROM (".repeat(n), ")".repeat(n));
    let deep = "SELECT ".to_owned() + &"(".repeat(90) + "a" + &")".repeat(90) + " FROM t";
    let chain: Vec<String> = (1..100)
        .map(|i| format!("c{i} AS (SELECT * FROM c{})", i - 1))
        .collect();
    let texts = [
        nested(99, "SELECT 1 AS a"),
        vec!["SELECT 1"; 501].join(" UNION ALL "),
        vec!["SELECT 1"; 501].join(" EXCEPT "),
        format!("{deep} WHERE a IN (SELECT b FROM t)"),
        format!(
            "WITH c0 AS (SELECT 1), {} SELECT * FROM c99",
            chain.join(", ")
        ),
        format!("SELECT {} FROM t", vec!["(SELECT 1)"; 990].join(",")),
        format!(
            "SELECT 1 FROM t WHERE a {}",
            "= 1".to_owned() + &" OR a = 1".repeat(90)
        ),
        format!("SELECT {}1", "NOT ".repeat(95)),
        format!(
            "SELECT {}1{}",
            "CASE WHEN 1 THEN ".repeat(95),
            " END".repeat(95)
        ),
    ];
    for text in &texts {
        // The gate may run on a thread of the async runtime, the engine on one of ours.
        let judged = on_a_stack(2, || inspect(text, &SchemaFacts::default(), &limits));
        let outcome = match judged {
            Ok(inspected) => on_a_stack(16, || {
                let mut reader = engine.store.reader().unwrap();
                reader.query_all(&inspected.sql, &[]).map(|_| ())
            }),
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            let head: String = text.chars().take(60).collect();
            panic!("{head}: {error}");
        }
    }
}

#[test]
fn views_at_the_limit_of_depth_run() {
    let mut engine = Engine::new(&["CREATE TABLE t(a)"]);
    for i in 0..40 {
        let below = if i == 0 {
            "t".into()
        } else {
            format!("v{}", i - 1)
        };
        engine.run(&format!(
            "CREATE VIEW v{i} AS SELECT * FROM (SELECT a FROM {below})"
        ));
    }
    engine.run("SELECT * FROM v39");
}

#[test]
fn printing_a_statement_keeps_its_meaning() {
    // The text of an expression is kept beside it, for the name of a column; a bare
    // parameter is printed with its number.
    let spacing = regex::Regex::new(
        r#"(, numbered: (true|false)|Some\(ImplicitColumnName\(Name \{[^}]*\}\)\)|source: Some\("(?:[^"\\]|\\.)*"\))"#,
    )
    .unwrap();
    let parse = |text: &str| {
        let mut parser = turso_parser::parser::Parser::new(text.as_bytes());
        match parser.next() {
            Some(Ok(command)) => command,
            other => panic!("{text}: {other:?}"),
        }
    };
    for sql in CORPUS {
        let meant = parse(sql);
        let printed = parse(&meant.to_string());
        let shape = |command| {
            spacing
                .replace_all(&format!("{command:?}"), "")
                .into_owned()
        };
        assert_eq!(shape(&meant), shape(&printed), "{sql}\n{meant}");
    }
}

#[test]
fn the_reference_names_every_refusal() {
    let text = reference();
    let words: BTreeSet<_> = tidegate_engine::statement_gate::refusals()
        .iter()
        .map(|refusal| refusal.reason)
        .collect();
    assert!(words.iter().all(|word| text.contains(&format!("`{word}`"))));
}

const CORPUS: &[&str] = &[
    "SELECT a+1, b||'x' AS c, -a, NOT a, a IS NOT NULL, a BETWEEN 1 AND 2 OR b IN (1,2) FROM t",
    "SELECT CASE a WHEN 1 THEN 'x' ELSE NULL END, CAST(a AS VARCHAR(10)), a COLLATE NOCASE FROM t",
    "SELECT count(*), sum(DISTINCT a) FILTER (WHERE a > 1), group_concat(a, ',' ORDER BY b) FROM t",
    "SELECT row_number() OVER (PARTITION BY a ORDER BY b DESC NULLS LAST ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
    "SELECT lag(a, 1) OVER w FROM t WINDOW w AS (ORDER BY b)",
    "WITH RECURSIVE c(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM c WHERE n < 5) SELECT * FROM c LIMIT 3 OFFSET 1",
    "SELECT * FROM t AS a LEFT JOIN u USING (id) NATURAL JOIN w CROSS JOIN (x, y) ON a.id = x.id",
    "SELECT DISTINCT \"we\"\"ird\", [b r], `c` FROM \"t t\" GROUP BY 1, 2 HAVING count(*) > 1 ORDER BY 2 DESC",
    "SELECT x'00ff', 1e5, 0x1f, 'it''s', ?, ?5, :a, @b, $c, CURRENT_TIMESTAMP, TRUE FROM t",
    "SELECT EXISTS (SELECT 1), (SELECT 2), (1, 2) = (SELECT 1, 2), a -> '$.b', a ->> 'c', a LIKE 'x%' ESCAPE '\\' FROM t",
    "INSERT OR IGNORE INTO t(a, b) VALUES (1, 2), (3, 4) ON CONFLICT (a) WHERE a > 1 DO UPDATE SET b = excluded.b WHERE b < 5 RETURNING *, a AS x",
    "INSERT INTO t SELECT * FROM u WHERE true ON CONFLICT DO NOTHING",
    "INSERT INTO t DEFAULT VALUES",
    "UPDATE t AS x SET a = 1, (b, c) = (2, 3) FROM u WHERE x.id = u.id RETURNING x.a",
    "DELETE FROM t INDEXED BY i WHERE a GLOB '*x' RETURNING a",
    "SELECT a FROM t UNION ALL SELECT b FROM u EXCEPT SELECT c FROM w INTERSECT SELECT 1 ORDER BY 1",
    "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY AUTOINCREMENT, a TEXT NOT NULL DEFAULT 'x' CHECK (length(a) > 0) COLLATE NOCASE, b REFERENCES p(id) ON DELETE CASCADE ON UPDATE SET NULL DEFERRABLE INITIALLY DEFERRED, UNIQUE (a, b), FOREIGN KEY (b) REFERENCES q(x))",
    "CREATE TABLE t(a TEXT, b ANY) STRICT",
    "CREATE UNIQUE INDEX IF NOT EXISTS i ON t(a COLLATE NOCASE DESC, lower(b)) WHERE a IS NOT NULL",
    "CREATE TRIGGER r BEFORE UPDATE OF a, b ON t FOR EACH ROW WHEN new.a > old.a BEGIN UPDATE u SET x = new.a; INSERT INTO w SELECT raise(ABORT, 'no'); DELETE FROM q WHERE id = old.id; END",
    "CREATE VIEW v(a, b) AS SELECT 1, 2 UNION SELECT x, y FROM t",
    "ALTER TABLE t RENAME COLUMN a TO \"b c\"",
    "EXPLAIN QUERY PLAN SELECT * FROM t WHERE a = 1",
];
