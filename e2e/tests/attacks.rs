//! Statements meant to do harm: refused or stopped, and the node lives on unharmed.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tidegate_e2e::pair::READY_LIMIT;
use tidegate_e2e::{Node, NodeOptions, Outcome};

/// Longest time that any of them may take, with the limits the node is started with.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Most memory the node may ever have taken.
const MEMORY_KIB_MAX: u64 = 1_024 * 1_024;
/// What a data directory may hold.
const KNOWN_FILES: [&str; 4] = ["LOCK", "high-water", "tidegate.db", "tidegate.db-wal"];

/// What must become of an attack.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Expected {
    /// Refused before it runs, with a reason.
    Refused,
    /// Ends with an error, refused or not.
    Error,
    /// May do what SQL says; must only do no harm.
    Harmless,
}

use Expected::{Error, Harmless, Refused};

fn attacks() -> Vec<(String, Expected)> {
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";
    let mut attacks: Vec<(String, Expected)> = [
        ("DROP TABLE turso_cdc", Refused),
        ("DELETE FROM turso_cdc", Refused),
        ("SELECT * FROM turso_cdc", Refused),
        ("SELECT * FROM \"_TideGate_meta\"", Refused),
        ("INSERT INTO [_tidegate_history] VALUES (1)", Refused),
        ("CREATE VIEW v AS SELECT * FROM _tidegate_slots", Refused),
        (
            "CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM turso_cdc; END",
            Refused,
        ),
        (
            "WITH x AS (SELECT * FROM turso_cdc) SELECT * FROM x",
            Refused,
        ),
        ("PRAGMA journal_mode = delete", Refused),
        ("PRAGMA journal_mode = 'mvcc'", Refused),
        ("PRAGMA synchronous = off", Refused),
        ("PRAGMA capture_data_changes_conn('off')", Refused),
        ("PRAGMA writable_schema = 1", Refused),
        ("PRAGMA query_only = 1", Refused),
        ("PRAGMA wal_checkpoint(TRUNCATE)", Refused),
        ("PRAGMA no_such_thing = 1", Refused),
        ("ATTACH 'attacked.db' AS other", Refused),
        ("ATTACH 'file:attacked.db?mode=rwc' AS other", Refused),
        ("DETACH main", Refused),
        ("VACUUM", Refused),
        ("VACUUM INTO 'attacked.db'", Refused),
        ("SELECT load_extension('./attacked.so')", Refused),
        ("SELECT setval('s', 5)", Refused),
        ("SELECT nextval('s')", Refused),
        ("SELECT a FROM t ORDER BY setval('s', 5)", Refused),
        ("CREATE TABLE d (a DEFAULT (nextval('s')))", Refused),
        ("CREATE TEMP TABLE x (a)", Refused),
        ("CREATE TABLE temp.x (a)", Refused),
        ("CREATE VIRTUAL TABLE x USING fts5(a)", Refused),
        (
            "CREATE TABLE x (a INTEGER PRIMARY KEY) WITHOUT ROWID",
            Refused,
        ),
        ("SELECT 1; SELECT 2", Error),
        ("SELECT 1\0; DROP TABLE t", Error),
        ("SELECT zeroblob(2000000000)", Error),
        ("INSERT INTO t (a) VALUES (zeroblob(1500000000))", Error),
        ("SELECT printf('%2000000000d', 1)", Harmless),
        ("SELECT length(randomblob(2000000000))", Error),
        (
            "SELECT replace(printf('%100000d', 1), ' ', printf('%10000d', 1))",
            Error,
        ),
        ("SELECT json('{bad')", Error),
        ("SELECT abs(-9223372036854775808)", Error),
    ]
    .map(|(sql, expected)| (sql.to_owned(), expected))
    .into();
    attacks.extend([
        (format!("{endless} SELECT count(*) FROM n"), Error),
        (format!("{endless} SELECT i FROM n"), Error),
        (
            format!("{endless} SELECT group_concat(randomblob(1000)) FROM n"),
            Error,
        ),
        (
            format!("INSERT INTO t (a) {endless} SELECT i FROM n"),
            Error,
        ),
        (
            format!("SELECT {}1{}", "(".repeat(1_000), ")".repeat(1_000)),
            Error,
        ),
        (format!("SELECT {}1", "-".repeat(3_000)), Harmless),
        (format!("SELECT {}1", "NOT ".repeat(3_000)), Error),
        (format!("SELECT 1{}", " + 1".repeat(20_000)), Error),
        (
            format!(
                "SELECT * FROM {}t{}",
                "(SELECT * FROM ".repeat(300),
                ")".repeat(300)
            ),
            Error,
        ),
        (vec!["SELECT 1"; 5_000].join(" UNION ALL "), Error),
        (
            format!(
                "SELECT json('{}{}')",
                "[".repeat(100_000),
                "]".repeat(100_000)
            ),
            Error,
        ),
        (
            format!(
                "SELECT '{}' LIKE '{}b'",
                "a".repeat(20_000),
                "%a".repeat(10_000)
            ),
            Harmless,
        ),
        (format!("SELECT 1 /* {} */", "x".repeat(2_000_000)), Error),
    ]);
    attacks
}

async fn start(dir: &Path) -> Result<Node> {
    let mut options = NodeOptions::primary("n1", &dir.join("n1"))?;
    let limits = [
        "--statement-timeout",
        "2s",
        "--write-timeout",
        "2s",
        "--result-bytes-max",
        "16MiB",
    ];
    options.extra = limits.map(str::to_owned).into();
    let mut node = Node::start(options)?;
    node.wait_ready(READY_LIMIT).await?;
    for statement in [
        "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, a)",
        "INSERT INTO t (a) VALUES ('kept')",
    ] {
        node.client().execute(statement, &[]).await.rows()?;
    }
    Ok(node)
}

fn judge(sql: &str, expected: Expected, outcome: &Outcome) -> Result<()> {
    let short: String = sql.chars().take(80).collect();
    match (expected, outcome) {
        (Refused, Outcome::Failed(code, _)) => ensure!(
            code.starts_with("TIDEGATE_") || code == "SQLITE_ERROR",
            "{short}: {outcome:?}"
        ),
        (Error, Outcome::Failed(..))
        | (Harmless, Outcome::Failed(..) | Outcome::Acknowledged(_)) => {}
        _ => anyhow::bail!("{short}: wanted {expected:?}, got {outcome:?}"),
    }
    Ok(())
}

/// Names in a directory.
fn names(dir: &Path) -> Result<BTreeSet<String>> {
    std::fs::read_dir(dir)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

fn peak_memory_kib(node: &Node) -> Result<u64> {
    let pid = node.pid().context("it runs")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let number = line.and_then(|l| l.split_whitespace().next());
    Ok(number.context("no peak")?.parse()?)
}

#[tokio::test]
async fn statements_meant_to_do_harm_do_none() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut node = start(dir.path()).await?;
    let client = node.client();
    for (sql, expected) in attacks() {
        let started = Instant::now();
        let outcome = client.execute(&sql, &[]).await;
        let short: String = sql.chars().take(80).collect();
        ensure!(node.is_running(), "killed by {short}\n{}", node.log_tail());
        ensure!(
            started.elapsed() < ANSWER_LIMIT,
            "{short}: {:?}",
            started.elapsed()
        );
        judge(&sql, expected, &outcome)?;
    }
    let kept = client.execute("SELECT id, a FROM t", &[]).await.rows()?;
    let row = vec![
        json!({"type": "integer", "value": "1"}),
        json!({"type": "text", "value": "kept"}),
    ];
    ensure!(kept == [row], "{kept:?}");
    ensure!(client.is_ready().await, "{}", client.readyz_verbose().await);
    let peak = peak_memory_kib(&node)?;
    ensure!(peak < MEMORY_KIB_MAX, "{peak} KiB at most");
    let log = node.log();
    ensure!(!log.contains("panicked"), "{log}");
    let files = names(&dir.path().join("n1"))?;
    let known = |name: &String| KNOWN_FILES.contains(&name.as_str());
    ensure!(files.iter().all(known), "{files:?}");
    ensure!(names(dir.path())?.len() == 2, "{:?}", names(dir.path())?);
    ensure!(!Path::new("attacked.db").exists(), "a file appeared");
    ensure!(node.stop()? == Some(0), "{}", node.log_tail());
    Ok(())
}

#[tokio::test]
async fn bodies_meant_to_do_harm_do_none() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut node = start(dir.path()).await?;
    let client = node.client();
    let text = format!("SELECT {}1", "1,".repeat(50_000_000));
    let outcome = client.execute(&text, &[]).await;
    ensure!(!outcome.is_acknowledged(), "100 MB of SQL ran");
    let arguments = vec![json!({"type": "null"}); 40_000];
    let outcome = client.execute("SELECT ?", &arguments).await;
    ensure!(!outcome.is_acknowledged(), "40,000 arguments were taken");
    let mut deep = json!(null);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    let (status, _) = client.post("/v3/pipeline", &deep).await?;
    ensure!(status == 400, "{status}");
    let (status, _) = client
        .post("/v3/pipeline", &json!({"baton": "forged", "requests": []}))
        .await?;
    ensure!((400..500).contains(&status), "{status}");
    ensure!(client.is_ready().await, "{}", client.readyz_verbose().await);
    ensure!(node.stop()? == Some(0), "{}", node.log_tail());
    Ok(())
}
