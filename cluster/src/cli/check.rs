//! `tidegate check`: would this schema and these statements replicate?

use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tidegate_engine::preflight::{Finding, Verdict, check_script};

use super::{Exit, Failure, Output};

/// Most characters of a statement that are shown.
const SHOWN_MAX: usize = 60;

/// What to check.
#[derive(Args)]
pub struct CheckArgs {
    /// A script of SQL statements; `-` reads standard input
    file: PathBuf,
}

/// Judges without running anything; exit code 1 when a statement would be refused.
pub fn run(args: &CheckArgs, output: Output) -> Result<Exit, Failure> {
    let name = args.file.display();
    let text = read(&args.file).map_err(|e| Failure::usage(format!("{name}: {e}")))?;
    let findings = check_script(&text).map_err(|e| Failure::failed(format!("{name}: {e}")))?;
    let refused = findings
        .iter()
        .filter(|finding| !matches!(finding.verdict, Verdict::Passes(_)));
    let refused: Vec<&Finding> = refused.collect();
    match output {
        Output::Json => {
            let list: Vec<_> = refused.iter().map(|finding| to_json(finding)).collect();
            println!("{}", json!({"statements": findings.len(), "refused": list}));
        }
        Output::Text => {
            for finding in &refused {
                println!("{name}:{}", to_text(finding));
            }
            eprintln!(
                "{} of {} statements pass.",
                findings.len() - refused.len(),
                findings.len()
            );
        }
    }
    Ok(match refused.is_empty() {
        true => Exit::Success,
        false => Exit::Failure,
    })
}

fn read(file: &PathBuf) -> std::io::Result<String> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(file)
}

fn parts(finding: &Finding) -> (&'static str, &str) {
    match &finding.verdict {
        Verdict::Passes(_) => ("passes", ""),
        Verdict::Refused { reason, message } => (reason, message),
        Verdict::Fails { message } => ("error", message),
    }
}

fn to_json(finding: &Finding) -> serde_json::Value {
    let (reason, message) = parts(finding);
    json!({
        "line": finding.line,
        "statement": finding.statement,
        "reason": reason,
        "message": message,
    })
}

fn to_text(finding: &Finding) -> String {
    let (reason, message) = parts(finding);
    let statement = finding
        .statement
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let shown: String = statement.chars().take(SHOWN_MAX).collect();
    let dots = if shown.len() < statement.len() {
        "…"
    } else {
        ""
    };
    format!("{}: {shown}{dots}\n    {reason}: {message}", finding.line)
}
