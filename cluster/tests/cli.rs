//! The binary as people run it: exit codes, messages, an ordered stop.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn tidegate(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .env_remove("TIDEGATE_URL")
        .env_remove("TIDEGATE_CONFIG");
    command
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A node with free ports, killed when dropped.
struct Node {
    child: Child,
    client: String,
    health: String,
}

impl Node {
    /// Ports are found by binding and letting go; nobody else on this machine hunts for them.
    fn start(data_dir: &Path) -> Self {
        let sockets = [(); 3].map(|()| std::net::TcpListener::bind("127.0.0.1:0").expect("binds"));
        let [client, peer, health] = sockets.map(|s| s.local_addr().expect("bound").to_string());
        let child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .arg("serve")
            .arg("--data-dir")
            .arg(data_dir)
            .args([
                "--client-addr",
                &client,
                "--peer-addr",
                &peer,
                "--health-addr",
                &health,
            ])
            .args(["--until-stdin-closes", "--node-id", "n1"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut node = Self {
            child,
            client,
            health,
        };
        node.wait_ready();
        node
    }

    fn wait_ready(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while tidegate(&["health", &self.health]).status.code() != Some(0) {
            let ended = self.child.try_wait().expect("asks");
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "{}",
                self.log()
            );
        }
    }

    fn sql(&self, sql: &str) -> Output {
        tidegate(&["sql", &self.client, "--mode", "csv", "-c", sql])
    }

    fn log(&mut self) -> String {
        self.child.kill().ok();
        let log = self.child.stderr.take().expect("piped");
        BufReader::new(log)
            .lines()
            .map_while(Result::ok)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Asks it to stop; its exit code.
    fn stop(mut self) -> Option<i32> {
        drop(self.child.stdin.take());
        self.child.wait().expect("ends").code()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn a_node_is_served_asked_stopped_and_started_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let node = Node::start(&data);
    let made =
        node.sql("CREATE TABLE t (x); INSERT INTO t VALUES (1), ('it''s;'); SELECT x FROM t");
    assert_eq!(
        (made.status.code(), out(&made).as_str()),
        (Some(0), "x\r\n1\r\nit's;\r\n"),
        "{}",
        err(&made)
    );
    let wrong = node.sql("SELECT * FROM nowhere");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(err(&wrong).contains("nowhere"), "{}", err(&wrong));
    for address in [&node.health, &node.client] {
        let status = tidegate(&["status", address, "--output", "json"]);
        let json: serde_json::Value = serde_json::from_slice(&status.stdout).expect("JSON");
        assert_eq!(
            (json["role"].as_str(), json["ready"].as_bool()),
            (Some("primary"), Some(true))
        );
        assert_eq!(
            json["cluster_id"].as_str().map(str::len),
            Some(32),
            "{json}"
        );
    }
    let second = tidegate(&[
        "serve",
        "--data-dir",
        data.to_str().expect("UTF-8"),
        "--client-addr",
        "127.0.0.1:0",
        "--health-addr",
        "127.0.0.1:0",
    ]);
    assert_eq!(second.status.code(), Some(1));
    assert!(
        err(&second).contains(&format!("in use by process {}", node.child.id())),
        "{}",
        err(&second)
    );
    assert_eq!(node.stop(), Some(0));
    let node = Node::start(&data);
    let again = node.sql("SELECT count(*) AS n FROM t");
    assert_eq!(out(&again), "n\r\n2\r\n");
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn a_script_is_read_from_standard_input_and_stops_at_the_first_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(&dir.path().join("data"));
    let mut shell = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["sql", &node.client, "--output", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let script = "CREATE TABLE t (x);\nBEGIN;\nINSERT INTO t VALUES (9223372036854775807);\nCOMMIT;\n\
                  .tables\nSELECT x FROM t;\nSELECT * FROM nowhere;\nDROP TABLE t;\n";
    let mut stdin = shell.stdin.take().expect("piped");
    stdin.write_all(script.as_bytes()).expect("writes");
    drop(stdin);
    let output = shell.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(out(&output), "t\n[{\"x\":\"9223372036854775807\"}]\n");
    assert_eq!(out(&node.sql("SELECT count(*) AS n FROM t")), "n\r\n1\r\n");
}

#[test]
fn the_configuration_is_checked_and_printed() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("tidegate.toml");
    let path = file.to_str().expect("UTF-8");
    std::fs::write(&file, out(&tidegate(&["config", "default"]))).expect("writes");
    assert_eq!(tidegate(&["config", "check", path]).status.code(), Some(0));
    std::fs::write(&file, "[listen]\ncleint = \"127.0.0.1:1\"\n").expect("writes");
    let checked = tidegate(&["config", "check", path]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(
        err(&checked).contains("`listen.client`"),
        "{}",
        err(&checked)
    );
    let served = tidegate(&["serve", "--config", path]);
    assert_eq!(served.status.code(), Some(3), "{}", err(&served));
}

#[test]
fn listening_to_others_needs_a_word() {
    let open = tidegate(&["serve", "--client-addr", "0.0.0.0:0"]);
    assert_eq!(open.status.code(), Some(3));
    assert!(err(&open).contains("--insecure-listen"), "{}", err(&open));
}

#[test]
fn nobody_at_the_address_is_told_apart_from_an_unhealthy_node() {
    let nobody = tidegate(&["health", "127.0.0.1:9"]);
    assert_eq!(nobody.status.code(), Some(3));
    assert!(err(&nobody).contains("tidegate serve"), "{}", err(&nobody));
}

#[test]
fn a_script_is_judged_without_running_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("schema.sql");
    let path = file.to_str().expect("UTF-8");
    std::fs::write(&file, "CREATE TABLE t (x);\nINSERT INTO t VALUES (1);\n").expect("writes");
    assert_eq!(tidegate(&["check", path]).status.code(), Some(0));
    std::fs::write(&file, "CREATE TABLE t (x);\nATTACH 'a' AS b;\n").expect("writes");
    let checked = tidegate(&["check", path]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(
        out(&checked).contains("schema.sql:2: ATTACH"),
        "{}",
        out(&checked)
    );
}
