//! Differences planted behind a daemon's back, one of each kind that must be found.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rusqlite::Connection;

use crate::checker::stored::DATABASE_FILE;

/// What is made different on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// Another value in a row.
    Value,
    /// A row less.
    MissingRow,
    /// A row more.
    ExtraRow,
    /// −0.0 in the place of 0.0, which SQL says are equal.
    NegativeZero,
    /// An index less.
    IndexDropped,
    /// Another `user_version`.
    UserVersion,
    /// Another position of an AUTOINCREMENT sequence.
    Sequence,
    /// One byte in a page of the file.
    PageByte,
}

/// Text that occurs once in the file.
const NEEDLE: &str = "a needle in the haystack of pages";
/// What is left of it after one byte was changed.
const BENT: &str = "a needlf in the haystack of pages";

impl Plant {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Value,
        Self::MissingRow,
        Self::ExtraRow,
        Self::NegativeZero,
        Self::IndexDropped,
        Self::UserVersion,
        Self::Sequence,
        Self::PageByte,
    ];

    /// Tables with something of everything that is changed.
    pub fn garden() -> Vec<String> {
        [
            "CREATE TABLE plants (id INTEGER PRIMARY KEY, name TEXT, height)",
            "CREATE INDEX plants_by_name ON plants (name)",
            "CREATE TABLE numbered (id INTEGER PRIMARY KEY AUTOINCREMENT, note TEXT)",
            "INSERT INTO numbered (note) VALUES ('one'), ('two')",
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400) \
             INSERT INTO plants SELECT i, 'plant ' || i, i / 4.0 FROM n",
            // Without a type: a REAL column of C SQLite stores -0.0 as the integer 0.
            "INSERT INTO plants VALUES (1000, 'zero', 0.0)",
            "PRAGMA user_version = 7",
        ]
        .iter()
        .map(|&statement| statement.to_owned())
        .chain([format!("INSERT INTO plants VALUES (1001, '{NEEDLE}', 1.5)")])
        .collect()
    }

    /// Makes the difference in a data directory whose node is stopped.
    pub fn plant(self, data_dir: &Path) -> Result<()> {
        let file = data_dir.join(DATABASE_FILE);
        let connection = Connection::open(&file)?;
        if self == Self::PageByte {
            // Into the pages with everything, or the byte would be hidden by the log.
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            drop(connection);
            return bend_byte(&file);
        }
        connection
            .execute_batch(self.sql())
            .with_context(|| format!("planting {self:?}"))
    }

    /// What the verdict must name.
    pub fn named(self) -> &'static [&'static str] {
        match self {
            Self::Value => &["plants", "17"],
            Self::MissingRow => &["plants", "18"],
            Self::ExtraRow => &["plants", "5000"],
            Self::NegativeZero => &["plants", "1000"],
            Self::PageByte => &["plants", "1001"],
            Self::IndexDropped => &["schema"],
            Self::UserVersion => &["user_version"],
            Self::Sequence => &["numbered"],
        }
    }

    fn sql(self) -> &'static str {
        match self {
            Self::Value => "UPDATE plants SET name = 'weed' WHERE id = 17",
            Self::MissingRow => "DELETE FROM plants WHERE id = 18",
            Self::ExtraRow => "INSERT INTO plants VALUES (5000, 'weed', 2.5)",
            Self::NegativeZero => "UPDATE plants SET height = -0.0 WHERE id = 1000",
            Self::IndexDropped => "DROP INDEX plants_by_name",
            Self::UserVersion => "PRAGMA user_version = 8",
            Self::Sequence => "UPDATE sqlite_sequence SET seq = 90 WHERE name = 'numbered'",
            Self::PageByte => "",
        }
    }
}

/// Changes one byte of the needle in the file itself.
pub fn bend_byte(file: &Path) -> Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(file)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let mut places = bytes
        .windows(NEEDLE.len())
        .enumerate()
        .filter(|(_, window)| *window == NEEDLE.as_bytes())
        .map(|(place, _)| place)
        .peekable();
    ensure!(places.peek().is_some(), "the needle is not in the pages");
    for place in places {
        file.seek(SeekFrom::Start(place as u64))?;
        file.write_all(BENT.as_bytes())?;
    }
    file.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump;

    #[test]
    fn every_plant_is_seen_by_the_independent_comparison() {
        for plant in Plant::ALL {
            let dir = tempfile::tempdir().unwrap();
            let (left, right) = (dir.path().join("left"), dir.path().join("right"));
            for side in [&left, &right] {
                std::fs::create_dir(side).unwrap();
                let connection = Connection::open(side.join(DATABASE_FILE)).unwrap();
                for statement in Plant::garden() {
                    connection.execute_batch(&statement).unwrap();
                }
            }
            let compare = || dump::compare(&left.join(DATABASE_FILE), &right.join(DATABASE_FILE));
            assert!(compare().unwrap().is_equal(), "before {plant:?}");
            plant.plant(&right).unwrap();
            assert!(!compare().unwrap().is_equal(), "after {plant:?}");
        }
    }
}
