//! kill -9 loses no acknowledged write.
//!
//! The test starts itself again as a child that writes and prints each acknowledged number,
//! kills it, and looks for every number in the reopened database.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use tidegate_engine::{Engine, Options, Params, Value};

use crate::support::{integer, ok};

const CHILD: &str = "TIDEGATE_TEST_KILL_CHILD_DIR";
const CLIENTS: i64 = 16;

#[test]
fn a_killed_process_has_lost_no_acknowledged_write() {
    if let Ok(dir) = std::env::var(CHILD) {
        return write_until_killed(&dir);
    }
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..6_i64 {
        acknowledged.extend(run_and_kill(dir.path(), round));
        check(dir.path(), &acknowledged);
    }
    assert!(acknowledged.len() > 1_000, "{} writes", acknowledged.len());
}

/// Starts the child, lets it acknowledge some hundred writes, kills it, and gives back all
/// numbers that it printed.
fn run_and_kill(dir: &std::path::Path, round: i64) -> Vec<i64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "kill::a_killed_process_has_lost_no_acknowledged_write",
        ])
        .arg("--nocapture")
        .env(CHILD, dir)
        .env("ROUND", round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    let wanted = 200 + 37 * round;
    let mut seen = 0;
    while seen < wanted {
        let before = text.len();
        assert!(
            lines.read_line(&mut text).unwrap() > 0,
            "the child ended: {text}"
        );
        seen += i64::from(text[before..].starts_with("ack "));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    lines.read_to_string(&mut text).unwrap();
    // The last line may be torn by the kill.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let numbers = whole.lines().filter_map(|line| line.strip_prefix("ack "));
    numbers.map(|number| number.parse().unwrap()).collect()
}

fn check(dir: &std::path::Path, acknowledged: &[i64]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let engine = Engine::open(Options::new(dir)).unwrap();
        let mut session = engine.session();
        let rows = ok(&mut session, "SELECT n FROM t").await.rows;
        let stored: std::collections::HashSet<i64> =
            rows.iter().filter_map(|row| row[0].as_integer()).collect();
        assert_eq!(stored.len(), rows.len(), "a write is there twice");
        let lost: Vec<_> = acknowledged
            .iter()
            .filter(|n| !stored.contains(n))
            .collect();
        assert!(lost.is_empty(), "acknowledged, but lost: {lost:?}");
        let healthy = ok(&mut session, "PRAGMA integrity_check").await;
        assert_eq!(healthy.single().unwrap().as_text(), Some("ok"));
        assert!(integer(&mut session, "SELECT count(*) FROM t").await > 0);
    });
}

fn write_until_killed(dir: &str) {
    let round: i64 = std::env::var("ROUND").unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        let engine = Engine::open(Options::new(dir)).unwrap();
        engine.start_primary("n1", "test").unwrap();
        ok(
            &mut engine.session(),
            "CREATE TABLE IF NOT EXISTS t(n INTEGER)",
        )
        .await;
        let mut clients = tokio::task::JoinSet::new();
        for client in 0..CLIENTS {
            let mut session = engine.session();
            clients.spawn(async move {
                for n in 0.. {
                    let n = (round * CLIENTS + client) * 1_000_000 + n;
                    let params = Params::positional([Value::from(n)]);
                    let sql = "INSERT INTO t VALUES (?)";
                    session.execute(sql, params, false).await.unwrap();
                    // Written at once and unbuffered, so that what was acknowledged is known.
                    let line = format!("ack {n}\n");
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                }
            });
        }
        clients.join_next().await;
    });
}
