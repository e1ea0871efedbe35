//! `tidegate-dump FILE` prints what a stopped database holds; `tidegate-dump FILE FILE`
//! compares two, with C SQLite. Exit status: 0 equal, 1 different, 2 not comparable.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use tidegate_e2e::dump;

#[derive(Parser)]
#[command(about = "Dumps or compares stopped databases with C SQLite")]
struct Arguments {
    /// A database file, such as `tidegate-data/tidegate.db` of a stopped node.
    file: PathBuf,
    /// A second one, to compare with.
    other: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool> {
    let Some(other) = &arguments.other else {
        let mut out = BufWriter::new(std::io::stdout().lock());
        dump::write_dump(&arguments.file, &mut out)?;
        out.flush()?;
        return Ok(true);
    };
    let found = dump::compare(&arguments.file, other)?;
    for problem in &found.integrity {
        eprintln!("integrity: {problem}");
    }
    for line in &found.named {
        println!("{line}");
    }
    println!(
        "{} tables, {} rows, {} differences",
        found.tables, found.rows, found.differences
    );
    Ok(found.is_equal())
}
