//! `tidegate converge`: the operator's convergence check.
//!
//! Asks the node for a pass and waits for its verdict. On a primary every attached replica is
//! compared; on a replica, that one. Exit code 0: all equal. 1: a difference was found. 2: it
//! could not be found out, which is not the same as equal.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{Attribute, Cell, Color, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::address::{Address, CLIENT_DEFAULT, Node};
use super::{Exit, Failure, Output};

/// Which node to ask, and for how long.
#[derive(Args)]
pub struct ConvergeArgs {
    #[command(flatten)]
    address: Address,
    /// Lets replicas that differ take over the primary's side, and compares again
    #[arg(long)]
    repair: bool,
    /// With --repair: only says what would be repaired
    #[arg(long, requires = "repair")]
    dry_run: bool,
    /// Longest wait for the verdict, in seconds
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    timeout: u64,
}

/// How often the progress is looked at.
const PERIOD: Duration = Duration::from_millis(50);

/// Runs the check.
pub async fn run(args: ConvergeArgs, output: Output) -> Result<Exit, Failure> {
    let node = args.address.node(CLIENT_DEFAULT)?;
    let (status, text) = node.post("/admin/v1/converge", "{}".to_owned()).await?;
    let started: Value = serde_json::from_str(&text)
        .map_err(|_| Failure::usage(format!("{} answered {status}: {text}", node.base())))?;
    let waiting = passes_before(&started);
    if waiting.is_empty() {
        report(
            &[],
            output,
            "no replica is attached, so nothing was compared",
        );
        return Ok(Exit::Inconclusive);
    }
    let deadline = Instant::now() + Duration::from_secs(args.timeout);
    let mut verdicts = wait(&node, &waiting, deadline, output).await?;
    let differs = exit_of(&verdicts, waiting.len()) == Exit::Failure;
    if args.repair && differs && !args.dry_run {
        report(&verdicts, output, "");
        verdicts = repair(&node, deadline, output).await?;
    } else if args.dry_run {
        let verb = if differs { "would" } else { "would not" };
        eprintln!("--repair {verb} change anything: the primary's side is taken over");
    }
    report(&verdicts, output, "");
    Ok(exit_of(&verdicts, waiting.len()))
}

/// Mends what differs, and waits for the pass that follows by itself.
async fn repair(node: &Node, deadline: Instant, output: Output) -> Result<Vec<Value>, Failure> {
    eprintln!("repairing: the primary's side is taken over");
    let (status, text) = node.post("/admin/v1/repair", "{}".to_owned()).await?;
    let started: Value = serde_json::from_str(&text)
        .map_err(|_| Failure::usage(format!("{} answered {status}: {text}", node.base())))?;
    let waiting = passes_before(&started);
    if waiting.is_empty() {
        return Err(Failure {
            exit: Exit::Inconclusive,
            message: "no replica could be repaired: none that differs is attached".into(),
        });
    }
    wait(node, &waiting, deadline, output).await
}

/// The nodes that will be compared, and how many passes each had ended before.
fn passes_before(started: &Value) -> BTreeMap<String, u64> {
    let nodes = started["nodes"].as_array().into_iter().flatten();
    nodes
        .filter(|node| node["started"] == true)
        .filter_map(|node| {
            let name = node["node"].as_str()?.to_owned();
            Some((name, node["passes_before"].as_u64()?))
        })
        .collect()
}

/// Watches until each node has ended one more pass. Nodes without a verdict at the deadline
/// come back as they are.
async fn wait(
    node: &Node,
    waiting: &BTreeMap<String, u64>,
    deadline: Instant,
    output: Output,
) -> Result<Vec<Value>, Failure> {
    let bar = progress_bar(output);
    loop {
        let status = node.get_json("/status").await?;
        let replicas = status["replicas"].as_array().cloned().unwrap_or_default();
        let asked: Vec<Value> = replicas
            .into_iter()
            .filter(|r| waiting.contains_key(r["node"].as_str().unwrap_or_default()))
            .collect();
        let ended = |r: &Value| {
            let before = waiting.get(r["node"].as_str().unwrap_or_default());
            r["passes"].as_u64() > before.copied()
        };
        let rows: u64 = asked.iter().filter_map(|r| r["pass_rows"].as_u64()).sum();
        bar.set_message(format!("{rows} rows compared"));
        bar.tick();
        let done = asked.len() == waiting.len() && asked.iter().all(ended);
        if done || Instant::now() > deadline {
            bar.finish_and_clear();
            return Ok(asked
                .into_iter()
                .map(|r| verdict_of(&r, ended(&r)))
                .collect());
        }
        tokio::time::sleep(PERIOD).await;
    }
}

fn verdict_of(replica: &Value, ended: bool) -> Value {
    let proof = &replica["proof"];
    let verdict = match ended {
        true => proof["verdict"].as_str().unwrap_or("inconclusive"),
        false => "inconclusive",
    };
    let detail = match ended {
        true => proof["detail"].as_str().unwrap_or_default(),
        false => "no verdict within the time given",
    };
    json!({
        "node": replica["node"],
        "verdict": verdict,
        "at_seq": proof["at_seq"],
        "applied_seq": replica["applied_seq"],
        "detail": detail,
    })
}

fn exit_of(verdicts: &[Value], expected: usize) -> Exit {
    let all = |word: &str| verdicts.iter().all(|v| v["verdict"] == word);
    if verdicts.iter().any(|v| v["verdict"] == "diverged") {
        Exit::Failure
    } else if verdicts.len() == expected && expected > 0 && all("equal") {
        Exit::Success
    } else {
        Exit::Inconclusive
    }
}

fn progress_bar(output: Output) -> ProgressBar {
    if output == Output::Json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} comparing … {msg} ({elapsed})");
    ProgressBar::new_spinner().with_style(style.expect("the template is a constant"))
}

fn report(verdicts: &[Value], output: Output, note: &str) {
    if output == Output::Json {
        println!("{}", json!({"nodes": verdicts, "note": note}));
        return;
    }
    if verdicts.is_empty() {
        eprintln!("inconclusive: {note}");
        return;
    }
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY);
    table.set_header(["node", "verdict", "at", "what was found"]);
    for verdict in verdicts {
        let word = verdict["verdict"].as_str().unwrap_or("inconclusive");
        let color = match word {
            "equal" => Color::Green,
            "diverged" => Color::Red,
            _ => Color::Yellow,
        };
        table.add_row(vec![
            Cell::new(verdict["node"].as_str().unwrap_or_default()),
            Cell::new(word).fg(color).add_attribute(Attribute::Bold),
            Cell::new(&verdict["at_seq"]),
            Cell::new(verdict["detail"].as_str().unwrap_or_default()),
        ]);
    }
    println!("{table}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(word: &str) -> Value {
        json!({"node": "n2", "verdict": word})
    }

    #[test]
    fn only_a_verdict_from_every_node_is_a_yes() {
        assert_eq!(exit_of(&[verdict("equal")], 1), Exit::Success);
        assert_eq!(exit_of(&[verdict("equal")], 2), Exit::Inconclusive);
        assert_eq!(exit_of(&[], 0), Exit::Inconclusive);
        let mixed = [verdict("equal"), verdict("inconclusive")];
        assert_eq!(exit_of(&mixed, 2), Exit::Inconclusive);
        let differs = [verdict("inconclusive"), verdict("diverged")];
        assert_eq!(exit_of(&differs, 2), Exit::Failure);
    }

    #[test]
    fn an_earlier_verdict_is_not_the_answer() {
        let replica = json!({"node": "n2", "proof": {"verdict": "equal", "at_seq": 3}});
        assert_eq!(verdict_of(&replica, false)["verdict"], "inconclusive");
        assert_eq!(verdict_of(&replica, true)["verdict"], "equal");
    }
}
