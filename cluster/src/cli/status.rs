//! `tidegate status`: the cluster at a glance.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{Attribute, Cell, Color, Table};
use serde_json::Value;

use super::address::{Address, HEALTH_DEFAULT};
use super::{Exit, Failure, Output};

/// Which node to ask, and how often.
#[derive(Args)]
pub struct StatusArgs {
    #[command(flatten)]
    address: Address,
    /// Shows it again every second
    #[arg(long)]
    watch: bool,
}

/// Shows the status; exit code 1 when the node is not ready.
pub async fn run(args: StatusArgs, output: Output) -> Result<Exit, Failure> {
    let node = args.address.node(HEALTH_DEFAULT)?;
    loop {
        let answer = node.get_json("/status").await;
        if args.watch && std::io::stdout().is_terminal() {
            // Home, and clear to the end: no flicker.
            print!("\x1b[H\x1b[2J");
        }
        let ready = match (&answer, output) {
            (Ok(status), Output::Json) => {
                println!("{status}");
                status["ready"] == true
            }
            (Ok(status), Output::Text) => {
                println!("{}", show(status));
                status["ready"] == true
            }
            (Err(failure), _) if args.watch => {
                eprintln!("{}", failure.message);
                false
            }
            (Err(_), _) => return Err(answer.expect_err("matched an error")),
        };
        std::io::stdout().flush().ok();
        if !args.watch {
            return Ok(if ready { Exit::Success } else { Exit::Failure });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn show(status: &Value) -> String {
    let id = status["cluster_id"].as_str().unwrap_or_default();
    let short = id.get(..8).unwrap_or(id);
    let mut text = format!(
        "cluster {} ({short})  epoch {}  head {}\n",
        word(&status["cluster_name"]),
        status["epoch"],
        status["head"]["seq"],
    );
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY);
    table.set_header(["node", "role", "state", "applied", "lag", "proof"]);
    if status["role"] != "replica" {
        table.add_row(vec![
            Cell::new(word(&status["node"])),
            Cell::new(word(&status["role"])),
            state(&status["state"], &status["reason"]),
            Cell::new(&status["applied_seq"]),
            Cell::new("–"),
            Cell::new("reference"),
        ]);
    }
    for replica in status["replicas"].as_array().into_iter().flatten() {
        table.add_row(vec![
            Cell::new(word(&replica["node"])),
            Cell::new("replica"),
            state(&replica["state"], &replica["reason"]),
            Cell::new(&replica["applied_seq"]),
            Cell::new(lag(&replica["lag"])),
            Cell::new(proof(&replica["proof"])),
        ]);
    }
    text += &table.to_string();
    for (check, reason) in status["failing"].as_object().into_iter().flatten() {
        text += &format!("\nnot ready: {check}: {}", word(reason));
    }
    for peer in status["peers"].as_array().into_iter().flatten() {
        if let Some(problem) = peer["problem"].as_str() {
            text += &format!("\npeer {}: {problem}", word(&peer["node"]));
        }
    }
    for (check, reason) in status["alarms"].as_object().into_iter().flatten() {
        text += &format!("\nalarm: {check}: {}", word(reason));
    }
    text
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or("–").to_owned()
}

fn state(state: &Value, reason: &Value) -> Cell {
    let state = word(state);
    let color = match state.as_str() {
        "ready" => Color::Green,
        "diverged" | "fenced" | "stalled" | "no_space" | "io_error" | "config_conflict" => {
            Color::Red
        }
        _ => Color::Yellow,
    };
    let text = match reason.as_str() {
        None | Some("none") => state,
        Some(reason) => format!("{state} ({reason})"),
    };
    Cell::new(text).fg(color).add_attribute(Attribute::Bold)
}

fn lag(lag: &Value) -> String {
    let seconds = lag["seconds"].as_f64().unwrap_or_default();
    format!("{} changes, {:.0} ms", lag["changes"], seconds * 1e3)
}

fn proof(proof: &Value) -> String {
    match proof["verdict"].as_str() {
        None => "none yet".to_owned(),
        Some(verdict) => {
            let age = proof["age_seconds"].as_f64().unwrap_or_default();
            format!("{verdict} at {} ({age:.0} s ago)", proof["at_seq"])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_table_has_a_row_for_each_node_and_says_what_fails() {
        let status = json!({
            "cluster_id": "0123456789abcdef", "cluster_name": "c", "epoch": 2,
            "node": "n1", "role": "primary", "state": "ready", "reason": "none",
            "applied_seq": 10, "head": {"seq": 10}, "failing": {"disk": "3 MiB free"},
            "peers": [{"node": "n2", "problem": null},
                {"node": "n3", "problem": "http://n3:9070 did not answer in time"}],
            "alarms": {"log_retention": "n2: away"},
            "replicas": [{"node": "n2", "state": "catching_up", "reason": "network",
                "applied_seq": 7, "lag": {"changes": 3, "seconds": 0.25}, "proof": null}],
        });
        let text = show(&status);
        for part in [
            "01234567",
            "n1",
            "n2",
            "catching_up (network)",
            "3 changes, 250 ms",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        let end = "not ready: disk: 3 MiB free\npeer n3: http://n3:9070 did not answer in time\n\
                   alarm: log_retention: n2: away";
        assert!(text.ends_with(end), "{text}");
    }
}
