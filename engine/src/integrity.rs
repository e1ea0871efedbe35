//! The engine's integrity check, as a value.
//!
//! It walks every page of the file, follows every b-tree, and compares each index with its
//! table: entries that are missing, too many or out of order, and broken UNIQUE and NOT NULL
//! rules. The digest looks at tables only, so this is what proves indexes.
//!
//! The engine checks the whole file or nothing: its PRAGMA takes a number of problems, not
//! the name of a table. It reads everything, so the background runs it at a low rate.

use crate::error::Result;
use crate::view::Reads;

/// Problems that one check reports at most.
const PROBLEMS_MAX: usize = 100;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Integrity {
    /// One sentence of the engine for each problem; empty for a healthy file.
    pub problems: Vec<String>,
}

impl Integrity {
    /// True when nothing was found.
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }

    /// The first problems in one line, for messages.
    pub fn summary(&self) -> String {
        match self.problems.as_slice() {
            [] => "ok".to_owned(),
            [only] => only.clone(),
            [first, rest @ ..] => format!("{first} (and {} more)", rest.len()),
        }
    }
}

/// Checks the whole file as the reader sees it. An error that the check itself meets, such
/// as a page that is no page, is a problem of the file and reported as one.
pub fn check(source: &mut impl Reads) -> Result<Integrity> {
    let mut problems = Vec::new();
    let sql = format!("PRAGMA integrity_check({PROBLEMS_MAX})");
    let outcome = source.read(&sql, &[], |row| {
        let said = row.get(0).as_text().unwrap_or("a problem without words");
        problems.extend(said.lines().filter(|l| is_problem(l)).map(str::to_owned));
        Ok(())
    });
    match outcome {
        Ok(()) => Ok(Integrity { problems }),
        Err(crate::Error::Corrupt(message) | crate::Error::Panicked(message)) => {
            problems.push(message);
            Ok(Integrity { problems })
        }
        Err(other) => Err(other),
    }
}

/// The engine heads its list of page problems with the name of the database.
fn is_problem(line: &str) -> bool {
    line != "ok" && !line.is_empty() && !line.starts_with("*** in database")
}
