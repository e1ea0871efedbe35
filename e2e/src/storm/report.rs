//! What a storm did, and the verdict over it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

use super::{Kill, Options};
use crate::checker;
use crate::dump::Comparison;
use crate::history::Tally;
use crate::readiness::Samples;

/// The account of a storm.
#[derive(Debug)]
pub struct Report {
    seed: u64,
    wanted_statements: u64,
    wanted_unanswered: usize,
    wanted_kills: usize,
    /// Statements sent.
    pub statements: u64,
    /// Requests by fate.
    pub requests: Tally,
    /// Error codes, how often, and one message of each.
    pub failures: BTreeMap<String, (u64, String)>,
    /// The kills in order.
    pub kills: Vec<Kill>,
    /// How long the load took, kills included.
    pub load: Duration,
    /// How long everything took.
    pub elapsed: Duration,
    /// What `tidegate converge` said, with its exit code.
    pub converge: Option<(i32, String)>,
    /// The stopped files side by side, with C SQLite.
    pub compared: Option<Result<Comparison, String>>,
    /// Each node after it was stopped.
    pub nodes: Vec<NodeReport>,
    /// What else went wrong.
    pub problems: Vec<String>,
}

/// One node at the end.
#[derive(Debug)]
pub struct NodeReport {
    /// Its id.
    pub id: String,
    /// What its sampler saw.
    pub samples: Samples,
    /// Resident memory before it was stopped.
    pub memory_kib: Option<u64>,
    /// How it ended.
    pub exit_code: Option<i32>,
    /// C SQLite's integrity check, and what the checkers found.
    pub judged: Result<(String, Vec<checker::Report>), String>,
    /// Everything it wrote.
    pub log: String,
}

impl Report {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            seed: options.seed,
            wanted_statements: options.statements,
            wanted_unanswered: options.unanswered,
            wanted_kills: options.kills * options.nodes,
            statements: 0,
            requests: Tally::default(),
            failures: BTreeMap::new(),
            kills: Vec::new(),
            load: Duration::ZERO,
            elapsed: Duration::ZERO,
            converge: None,
            compared: None,
            nodes: Vec::new(),
            problems: Vec::new(),
        }
    }

    pub(super) fn note(&mut self, when: &str, outcome: anyhow::Result<()>) {
        if let Err(error) = outcome {
            self.problems.push(format!("{when}: {error:#}"));
        }
    }

    /// Everything that speaks against the nodes; empty when they passed.
    pub fn objections(&self) -> Vec<String> {
        let mut all = self.problems.clone();
        if self.statements < self.wanted_statements {
            all.push(format!("only {} statements were sent", self.statements));
        }
        if self.kills.len() < self.wanted_kills {
            all.push(format!("only {} kills", self.kills.len()));
        }
        for kill in &self.kills {
            if kill.unanswered < self.wanted_unanswered {
                all.push(format!("a kill with {} unanswered only", kill.unanswered));
            }
        }
        match &self.converge {
            Some((0, _)) => {}
            Some((code, text)) => all.push(format!("converge exits with {code}: {text}")),
            None if self.nodes.len() > 1 => all.push("converge did not run".to_owned()),
            None => {}
        }
        match &self.compared {
            Some(Ok(compared)) if compared.is_equal() => {}
            Some(Ok(compared)) => all.push(format!(
                "the files differ in {} places: {}",
                compared.differences,
                compared.named.join("; ")
            )),
            Some(Err(why)) => all.push(format!("the files cannot be compared: {why}")),
            None if self.nodes.len() > 1 => all.push("the files were not compared".to_owned()),
            None => {}
        }
        all.extend(self.nodes.iter().flat_map(NodeReport::objections));
        all
    }

    /// Lost acknowledged writes, false readies, and so on: nothing?
    pub fn passed(&self) -> bool {
        self.objections().is_empty()
    }

    fn kill_table(&self) -> Table {
        let mut table = table(&[
            "kill",
            "node",
            "at",
            "after statements",
            "in flight",
            "acknowledged",
            "failed",
            "indeterminate",
            "ready again",
        ]);
        for (number, kill) in self.kills.iter().enumerate() {
            table.add_row([
                (number + 1).to_string(),
                kill.node.clone(),
                format!("{:.1} s", kill.at.as_secs_f64()),
                kill.statements.to_string(),
                kill.fates.total().to_string(),
                kill.fates.acknowledged.to_string(),
                kill.fates.failed.to_string(),
                kill.fates.indeterminate.to_string(),
                kill.ready_after.map_or("not awaited".to_owned(), |d| {
                    format!("{:.2} s", d.as_secs_f64())
                }),
            ]);
        }
        table
    }

    fn checker_table(&self) -> Table {
        let mut table = table(&[
            "node",
            "workload",
            "operations",
            "acknowledged",
            "failed",
            "indeterminate",
            "present",
            "wrong",
        ]);
        for node in &self.nodes {
            for report in node.judged.iter().flat_map(|(_, reports)| reports) {
                table.add_row([
                    node.id.clone(),
                    report.workload.to_owned(),
                    report.tally.total().to_string(),
                    report.tally.acknowledged.to_string(),
                    report.tally.failed.to_string(),
                    report.tally.indeterminate.to_string(),
                    report.present.to_string(),
                    report.wrong.to_string(),
                ]);
            }
        }
        table
    }

    fn node_table(&self) -> Table {
        let mut table = table(&[
            "node",
            "readyz asked",
            "said ready",
            "proven",
            "unanswered",
            "changes",
            "false ready",
            "memory",
            "exit",
            "integrity",
        ]);
        for node in &self.nodes {
            let samples = &node.samples;
            let mut row: Vec<_> = [
                samples.asked,
                samples.ready,
                samples.proven,
                samples.unanswered,
                samples.changes,
                samples.false_ready,
            ]
            .map(|n| n.to_string())
            .into();
            row.insert(0, node.id.clone());
            row.push(
                node.memory_kib
                    .map_or("-".into(), |k| format!("{} MB", k / 1_024)),
            );
            row.push(node.exit_code.map_or("-".into(), |c| c.to_string()));
            row.push(
                node.judged
                    .as_ref()
                    .map_or("-".into(), |(text, _)| text.clone()),
            );
            table.add_row(row);
        }
        table
    }

    fn failure_table(&self) -> Table {
        let mut table = table(&["error", "times", "for example"]);
        for (code, (times, message)) in &self.failures {
            let short: String = message.chars().take(90).collect();
            table.add_row([code.clone(), times.to_string(), short]);
        }
        table
    }
}

impl NodeReport {
    fn objections(&self) -> Vec<String> {
        let mut all = Vec::new();
        let id = &self.id;
        if self.exit_code != Some(0) {
            all.push(format!("{id} ended with {:?}", self.exit_code));
        }
        for problem in &self.samples.problems {
            all.push(format!("{id} was ready although {problem}"));
        }
        if self.samples.proven == 0 {
            all.push(format!("{id} was never seen ready under load"));
        }
        for word in ["panicked at", "uncaptured"] {
            if let Some(line) = self.log.lines().find(|line| line.contains(word)) {
                all.push(format!("{id} wrote: {line}"));
            }
        }
        match &self.judged {
            Err(why) => all.push(format!("{id} cannot be judged: {why}")),
            Ok((integrity, reports)) => {
                if integrity != "ok" {
                    all.push(format!("{id}: integrity check: {integrity}"));
                }
                for report in reports {
                    let found = report.problems.iter();
                    all.extend(found.map(|p| format!("{id}, {}: {p}", report.workload)));
                }
            }
        }
        all
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.statements as f64 / self.load.as_secs_f64().max(0.001);
        writeln!(
            f,
            "seed {}: {} statements in {:.1} s ({rate:.0}/s, kills included); requests: {} \
             acknowledged, {} failed, {} indeterminate; {:.1} s in all\n",
            self.seed,
            self.statements,
            self.load.as_secs_f64(),
            self.requests.acknowledged,
            self.requests.failed,
            self.requests.indeterminate,
            self.elapsed.as_secs_f64()
        )?;
        for table in [
            self.kill_table(),
            self.failure_table(),
            self.checker_table(),
            self.node_table(),
        ] {
            writeln!(f, "{table}\n")?;
        }
        if let Some((code, text)) = &self.converge {
            writeln!(f, "converge (exit {code}):\n{text}")?;
        }
        if let Some(Ok(compared)) = &self.compared {
            writeln!(
                f,
                "C SQLite compared {} tables and {} rows of both stopped files: {} differences\n",
                compared.tables, compared.rows, compared.differences
            )?;
        }
        let objections = self.objections();
        for objection in &objections {
            writeln!(f, "✗ {objection}")?;
        }
        let verdict = if objections.is_empty() {
            "PASSED"
        } else {
            "FAILED"
        };
        write!(f, "verdict: {verdict}")
    }
}

fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(ASCII_MARKDOWN)
        .set_header(columns.to_vec());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
