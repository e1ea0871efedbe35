//! Facts about whole processes: crashes, kills, and other programs at the same file.
//!
//! A child is this very test binary, told by a variable which part to play.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use tidegate_engine::adapter::Database;

use crate::bed::{Bed, integers, run, run_all, texts};

const PART: &str = "TIDEGATE_FACTS_PART";
const FILE: &str = "TIDEGATE_FACTS_FILE";
/// How often the writer is killed. The long run (255 times) was made by hand.
const KILLS: u64 = 4;

/// Plays the part that a parent asks for; does nothing in an ordinary run.
#[test]
fn child_process() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    let file = std::env::var(FILE).unwrap_or_default();
    match part.as_str() {
        "nested" => parse_nested(),
        "compound" => parse_compound(),
        "commit" => commit_until_killed(Path::new(&file)),
        "foreign" => write_with_c_sqlite(Path::new(&file)),
        other => panic!("unknown part {other}"),
    }
}

/// Fact 22.
#[test]
fn deep_nesting_and_long_compounds_overflow_the_stack() {
    for part in ["nested", "compound"] {
        let status = child(part, Path::new(""))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("a child");
        assert!(
            status.code().is_none(),
            "{part}: killed by a signal, not {status}"
        );
    }
}

/// Fact 29.
#[test]
fn acknowledged_commits_survive_kill_9() {
    let bed = Bed::new();
    let path = bed.dir().join("killed.db");
    let mut acknowledged = 0;
    for _ in 0..KILLS {
        let mut writer = child("commit", &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let output = BufReader::new(writer.stdout.take().expect("a pipe"));
        let mut answers = 0;
        for line in output.lines().map_while(Result::ok) {
            if let Some(id) = line.strip_prefix("done ") {
                acknowledged = id.parse().expect("a number");
                answers += 1;
                if answers == 60 {
                    writer.kill().expect("killed");
                }
            }
        }
        writer.wait().expect("gone");
        let database = Database::open(&path).expect("opens");
        let mut c = database.connect().expect("connects");
        let kept = integers(&mut c, "SELECT max(id), count(*) FROM t");
        assert!(
            kept[0] >= acknowledged,
            "{acknowledged} was answered, {} kept",
            kept[0]
        );
        assert_eq!(texts(&mut c, "PRAGMA integrity_check"), ["ok"]);
    }
    assert!(acknowledged >= 60 * i64::try_from(KILLS).expect("few"));
}

/// Fact 25.
#[test]
fn another_process_is_locked_out() {
    let bed = Bed::new();
    let mut c = bed.plain();
    run_all(&mut c, &["CREATE TABLE t(x)", "INSERT INTO t VALUES (1)"]);
    assert_eq!(foreign_write(&bed.path()), "locked");
    assert_eq!(integers(&mut c, "SELECT count(*) FROM t"), [1]);
}

/// Facts 25 and 49: opening and closing the file in this process drops the engine's lock.
#[test]
fn closing_any_descriptor_of_the_file_in_this_process_drops_the_engines_lock() {
    let bed = Bed::new();
    let mut c = bed.plain();
    run_all(&mut c, &["CREATE TABLE t(x)", "INSERT INTO t VALUES (1)"]);
    drop(std::fs::File::open(bed.path()).expect("opens"));
    assert_eq!(foreign_write(&bed.path()), "wrote");
}

/// Fact 25, the last part: nothing notices a byte changed in a checkpointed page.
#[test]
fn a_byte_edited_in_a_checkpointed_page_is_read_back_as_data() {
    let bed = Bed::new();
    let path = bed.dir().join("edited.db");
    let database = Database::open(&path).expect("opens");
    let mut c = database.connect().expect("connects");
    run_all(
        &mut c,
        &[
            "CREATE TABLE t(x)",
            "INSERT INTO t VALUES ('tide-and-gate')",
        ],
    );
    assert!(c.checkpoint_truncate().expect("a checkpoint").complete);
    c.close().expect("closes");
    drop(database);
    let mut bytes = std::fs::read(&path).expect("readable");
    let at = bytes
        .windows(13)
        .position(|w| w == b"tide-and-gate")
        .expect("the value is in the file");
    bytes[at] = b'T';
    std::fs::write(&path, bytes).expect("writable");
    let database = Database::open(&path).expect("opens");
    let mut c = database.connect().expect("connects");
    assert_eq!(texts(&mut c, "SELECT x FROM t"), ["Tide-and-gate"]);
    assert_eq!(texts(&mut c, "PRAGMA integrity_check"), ["ok"]);
}

fn child(part: &str, file: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command
        .args([
            "--exact",
            "process::child_process",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(PART, part)
        .env(FILE, file);
    command
}

/// What C SQLite in another process achieves: `wrote` or `locked`.
fn foreign_write(path: &Path) -> String {
    let output = child("foreign", path).output().expect("a child");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .find_map(|line| line.strip_prefix("foreign "))
        .unwrap_or_else(|| panic!("no answer: {text}"))
        .to_owned()
}

fn parse_nested() {
    let sql = format!(
        "{}SELECT 1{}",
        "SELECT * FROM (".repeat(1_000),
        ")".repeat(1_000)
    );
    run_in_memory(&sql);
}

fn parse_compound() {
    let sql = vec!["SELECT 1"; 5_000].join(" UNION ALL ");
    run_in_memory(&sql);
}

fn run_in_memory(sql: &str) {
    let database = Database::open(Path::new(":memory:")).expect("opens");
    let mut c = database.connect().expect("connects");
    c.execute(sql, &[]).ok();
}

fn commit_until_killed(path: &Path) {
    let database = Database::open(path).expect("opens");
    let mut c = database.connect().expect("connects");
    run(&mut c, "PRAGMA capture_data_changes_conn('id')");
    run(
        &mut c,
        "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, x)",
    );
    let from = integers(&mut c, "SELECT coalesce(max(id), 0) FROM t")[0];
    for id in from + 1..from + 100_000 {
        run(&mut c, "BEGIN IMMEDIATE");
        run(
            &mut c,
            &format!("INSERT INTO t VALUES ({id}, zeroblob(200))"),
        );
        run(&mut c, "COMMIT");
        println!("done {id}");
    }
}

fn write_with_c_sqlite(path: &Path) {
    let outcome =
        rusqlite::Connection::open(path).and_then(|c| c.execute_batch("INSERT INTO t VALUES (2)"));
    match outcome {
        Ok(()) => println!("\nforeign wrote"),
        Err(error) if error.to_string().contains("locked") => println!("\nforeign locked"),
        Err(error) => println!("\nforeign {error}"),
    }
}
