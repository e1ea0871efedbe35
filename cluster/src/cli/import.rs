//! `tidegate import`: takes over an existing SQLite file, or says why not.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tidegate_engine::adopt::{self, Report};

use super::{Exit, Failure, Output};

/// What to take over, and where to.
#[derive(Args)]
pub struct ImportArgs {
    /// The SQLite file; it is only read
    file: PathBuf,
    /// Data directory of the node that is to serve it; must hold no database yet
    #[arg(long, default_value = "./tidegate-data", env = "TIDEGATE_DATA_DIR")]
    data_dir: PathBuf,
    /// Only reports what would be imported and what speaks against it
    #[arg(long)]
    dry_run: bool,
}

/// Imports; exit code 1 when something in the file would not replicate.
pub fn run(args: &ImportArgs, output: Output) -> Result<Exit, Failure> {
    let report = match args.dry_run {
        true => adopt::inspect(&args.file),
        false => adopt::import(&args.file, &args.data_dir),
    };
    let report = report.map_err(|e| Failure::failed(format!("{}: {e}", args.file.display())))?;
    match output {
        Output::Json => println!("{}", to_json(&report)),
        Output::Text => tell(&report, args),
    }
    Ok(match report.is_acceptable() {
        true => Exit::Success,
        false => Exit::Failure,
    })
}

fn tell(report: &Report, args: &ImportArgs) {
    for objection in &report.objections {
        println!(
            "{}: {} [{}]",
            objection.object, objection.message, objection.reason
        );
    }
    for broken in &report.broken_references {
        eprintln!(
            "kept as they are: {} rows of {} refer to rows of {} that do not exist",
            broken.rows, broken.table, broken.parent
        );
    }
    let found = format!("{} tables, {} rows", report.tables.len(), report.rows());
    match (report.is_acceptable(), args.dry_run) {
        (false, _) => eprintln!(
            "Not imported: {} objections. {} was not touched.",
            report.objections.len(),
            args.file.display()
        ),
        (true, true) => eprintln!("It can be imported: {found}."),
        (true, false) => eprintln!(
            "Imported {found} into {dir}. Now: tidegate serve --data-dir {dir}",
            dir = args.data_dir.display()
        ),
    }
}

fn to_json(report: &Report) -> serde_json::Value {
    let objections: Vec<_> = report
        .objections
        .iter()
        .map(|o| json!({"object": o.object, "reason": o.reason, "message": o.message}))
        .collect();
    let tables: Vec<_> = report
        .tables
        .iter()
        .map(|table| json!({"name": table.name, "rows": table.rows}))
        .collect();
    json!({
        "acceptable": report.is_acceptable(),
        "bytes": report.bytes,
        "tables": tables,
        "objections": objections,
        "broken_references": report.broken_references.len(),
    })
}
