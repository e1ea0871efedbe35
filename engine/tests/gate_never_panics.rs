//! The gate answers any text with a judgement: no panic, no endless work.

use proptest::prelude::*;
use tidegate_engine::preflight::check_script;
use tidegate_engine::statement_gate::{
    Limits, SchemaFacts, SessionValues, bind_session_values, inspect, split,
};

/// Everything that takes a text from outside.
fn throw_at_the_gate(sql: &str) {
    let limits = Limits::default();
    let facts = facts();
    if let Ok(inspected) = inspect(sql, &facts, &limits) {
        // What passed once passes again, in the words that it was given.
        let again = inspect(&inspected.sql, &facts, &limits);
        assert!(
            again.is_ok(),
            "{sql:?} became {:?}: {again:?}",
            inspected.sql
        );
        if inspected.uses_session_values {
            let bound = bind_session_values(&inspected.sql, &SessionValues::default()).unwrap();
            assert!(
                inspect(&bound, &facts, &limits).is_ok(),
                "{sql:?} became {bound:?}"
            );
        }
    }
    let _ = split(sql, &limits);
    let _ = check_script(sql);
    let _ = SchemaFacts::from_texts([("x".to_owned(), sql.to_owned())]);
}

fn facts() -> SchemaFacts {
    let schema = [
        "CREATE TABLE t(a INTEGER PRIMARY KEY AUTOINCREMENT, b UNIQUE, c REFERENCES u ON DELETE CASCADE)",
        "CREATE TABLE u(id INTEGER PRIMARY KEY)",
        "CREATE VIEW v AS SELECT a, b FROM t",
        "CREATE TRIGGER r AFTER INSERT ON u BEGIN UPDATE t SET b = changes(); END",
    ];
    SchemaFacts::from_texts(schema.map(|sql| (sql.to_owned(), sql.to_owned())))
}

const SEEDS: &[&str] = &[
    "SELECT a, count(*) FROM t LEFT JOIN sqlite_master m ON m.name = b WHERE a IN (SELECT 1) GROUP BY 1",
    "WITH RECURSIVE c(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM c) SELECT last_insert_rowid() FROM c",
    "INSERT OR REPLACE INTO t(a, b) VALUES (1, ?), (2, :x) ON CONFLICT (a) DO UPDATE SET b = 1 RETURNING *",
    "UPDATE t SET b = CASE WHEN a THEN 'x' ELSE changes() END FROM u WHERE t.a = u.id",
    "CREATE TABLE n(a TEXT DEFAULT 'x' CHECK (a <> ''), b REFERENCES t(a), PRIMARY KEY (a, b))",
    "CREATE TRIGGER r2 BEFORE DELETE ON t WHEN old.a BEGIN DELETE FROM u; SELECT 1; END",
    "CREATE TABLE c AS SELECT a + 1, \"b\" FROM [t] UNION SELECT 1, x'00' LIMIT 2",
    "PRAGMA table_info('t')",
    "BEGIN TRANSACTION READONLY",
    "EXPLAIN QUERY PLAN SELECT * FROM v, pragma_table_list, json_each('[1]')",
    "ALTER TABLE t RENAME COLUMN a TO z; DROP TABLE t; DELETE FROM sqlite_sequence WHERE 1",
];

const TOKENS: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    ",",
    ";",
    ".",
    "'",
    "\"",
    "`",
    "--",
    "/*",
    "*/",
    "\n",
    " ",
    "?",
    "?9",
    ":a",
    "=",
    "*",
    "||",
    "->>",
    "x'0'",
    "0x",
    "1e",
    "é",
    "\u{0}",
    "SELECT",
    "FROM",
    "WHERE",
    "NOT",
    "CASE",
    "END",
    "BEGIN",
    "UNION",
    "EXCEPT SELECT 1",
    "WITH",
    "AS",
    "ON CONFLICT",
    "REPLACE",
    "turso_cdc",
    "sqlite_schema",
    "main.",
    "temp.",
    "IN",
    "VALUES",
    "RAISE(ABORT, 'x')",
    "OVER",
    "FILTER",
    "WINDOW",
    "ARRAY",
    "GENERATED ALWAYS AS",
    "WITHOUT ROWID",
    "setval(",
    "NULL",
];

fn mutated() -> impl Strategy<Value = String> {
    let cut = (any::<prop::sample::Index>(), any::<prop::sample::Index>());
    let edit = (0..4u8, cut, prop::sample::select(TOKENS));
    let edits = prop::collection::vec(edit, 1..6);
    (prop::sample::select(SEEDS), edits).prop_map(|(seed, edits)| {
        let mut chars: Vec<char> = seed.chars().collect();
        for (how, (from, to), token) in edits {
            let length = chars.len() + 1;
            let (a, b) = (from.index(length), to.index(length));
            let (from, to) = (a.min(b), a.max(b));
            match how {
                0 => drop(chars.drain(from..to)),
                1 => drop(chars.splice(from..from, token.chars())),
                2 => drop(chars.splice(from..(from + 1).min(length - 1), token.chars())),
                _ => {
                    let copied: Vec<char> = chars[from..to].to_vec();
                    drop(chars.splice(to..to, copied));
                }
            }
        }
        chars.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_judged(sql in "\\PC{0,200}") {
        throw_at_the_gate(&sql);
    }

    #[test]
    fn any_sequence_of_tokens_is_judged(tokens in prop::collection::vec(prop::sample::select(TOKENS), 0..40)) {
        throw_at_the_gate(&tokens.join(" "));
        throw_at_the_gate(&tokens.concat());
    }

    #[test]
    fn sql_with_mistakes_is_judged(sql in mutated()) {
        throw_at_the_gate(&sql);
    }
}
