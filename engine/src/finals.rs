//! Final values: what leaves no row in the log and so travels whole.
//!
//! Sequences (`sqlite_sequence`), `user_version`, `application_id`, and the ordered set of
//! triggers. A source sends each of them at the start of a stream and later when it has
//! changed; what it has sent is remembered as a fingerprint, per cursor.
//!
//! Triggers are dormant on a replica: an effect of a trigger arrives as touched rows, and
//! firing it again would be wrong. So a copy keeps the primary's set in `_tidegate_dormant`
//! and promotion wakes it. Their order is part of the value, because it decides which fires
//! first. Whichever of the two places holds them, the set reads the same.

use xxhash_rust::xxh3::xxh3_128;

use crate::adapter::Connection;
use crate::codec;
use crate::error::{Error, Result};
use crate::names;
use crate::store::table_exists;
use crate::triggers::{self, Trigger};
use crate::value::Value;

/// The last number that an AUTOINCREMENT table gave out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// The table.
    pub name: String,
    /// An integer, unless somebody wrote something else there.
    pub value: Value,
}

/// The two numbers in the file's header that belong to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeaderValues {
    /// `PRAGMA user_version`.
    pub user_version: i64,
    /// `PRAGMA application_id`.
    pub application_id: i64,
}

/// All final values at one position.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Finals {
    /// User sequences, by name.
    pub sequences: Vec<Sequence>,
    /// Header numbers.
    pub header: HeaderValues,
    /// Triggers, oldest first.
    pub triggers: Vec<Trigger>,
}

/// What a receiver is known to have. Starts empty, so that everything is sent once.
#[derive(Debug, Clone, Default)]
pub struct FinalsKnown {
    sequences: Option<u128>,
    header: Option<HeaderValues>,
    triggers: Option<u128>,
}

/// Which final values a batch must carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    /// Sequences.
    pub sequences: bool,
    /// Header numbers.
    pub header: bool,
    /// Triggers.
    pub triggers: bool,
}

impl Finals {
    /// Reads all of them; inside a transaction they belong together.
    pub fn read(connection: &mut Connection) -> Result<Self> {
        Ok(Self {
            sequences: read_sequences(connection)?,
            header: read_header(connection)?,
            triggers: triggers::trigger_set(connection)?,
        })
    }

    /// One hash over all of them.
    pub fn fingerprint(&self) -> u128 {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&hash_sequences(&self.sequences).to_le_bytes());
        codec::put_signed(&mut bytes, self.header.user_version);
        codec::put_signed(&mut bytes, self.header.application_id);
        bytes.extend_from_slice(&hash_triggers(&self.triggers).to_le_bytes());
        xxh3_128(&bytes)
    }
}

impl FinalsKnown {
    /// What of `finals` the receiver does not have yet.
    pub fn changed(&self, finals: &Finals) -> Changed {
        Changed {
            sequences: self.sequences != Some(hash_sequences(&finals.sequences)),
            header: self.header != Some(finals.header),
            triggers: self.triggers != Some(hash_triggers(&finals.triggers)),
        }
    }

    /// Remembers that the receiver gets them.
    pub fn note(&mut self, finals: &Finals) {
        self.sequences = Some(hash_sequences(&finals.sequences));
        self.header = Some(finals.header);
        self.triggers = Some(hash_triggers(&finals.triggers));
    }
}

/// The user's sequences, by name.
pub fn read_sequences(connection: &mut Connection) -> Result<Vec<Sequence>> {
    let mut sequences = Vec::new();
    if table_exists(connection, "sqlite_sequence")? {
        let sql = "SELECT name, seq FROM sqlite_sequence";
        connection.query(sql, &[], |row| {
            let name = row.text(0)?;
            if names::is_user(name) {
                let (name, value) = (name.to_owned(), row.value(1)?);
                sequences.push(Sequence { name, value });
            }
            Ok(())
        })?;
    }
    sequences.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(sequences)
}

/// Makes the user's sequences exactly these. By delete and insert: an UPDATE would find no
/// row where this copy has none yet.
pub fn write_sequences(connection: &mut Connection, wanted: &[Sequence]) -> Result<()> {
    let present = read_sequences(connection)?;
    if present == wanted {
        return Ok(());
    }
    for sequence in &present {
        let name = sequence.name.as_str().into();
        connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", &[name])?;
    }
    for sequence in wanted {
        let row = [sequence.name.as_str().into(), sequence.value.clone()];
        connection.execute("INSERT INTO sqlite_sequence(name, seq) VALUES (?, ?)", &row)?;
    }
    let written = read_sequences(connection)?;
    if written == wanted {
        Ok(())
    } else {
        Err(Error::Diverging(format!(
            "sequences were set to {wanted:?} but read back as {written:?}"
        )))
    }
}

/// `user_version` and `application_id`.
pub fn read_header(connection: &mut Connection) -> Result<HeaderValues> {
    let mut read = |pragma: &str| -> Result<i64> {
        let value = connection.query_integer(pragma, &[])?;
        value.ok_or_else(|| Error::Corrupt(format!("no value from {pragma}")))
    };
    Ok(HeaderValues {
        user_version: read("PRAGMA user_version")?,
        application_id: read("PRAGMA application_id")?,
    })
}

/// Sets `user_version` and `application_id`.
pub fn write_header(connection: &mut Connection, wanted: HeaderValues) -> Result<()> {
    let present = read_header(connection)?;
    let mut set = |name: &str, from: i64, to: i64| -> Result<()> {
        if from != to {
            connection.execute(&format!("PRAGMA {name} = {to}"), &[])?;
        }
        Ok(())
    };
    set("user_version", present.user_version, wanted.user_version)?;
    set(
        "application_id",
        present.application_id,
        wanted.application_id,
    )?;
    let written = read_header(connection)?;
    if written == wanted {
        Ok(())
    } else {
        Err(Error::Diverging(format!(
            "the header was set to {wanted:?} but reads back as {written:?}"
        )))
    }
}

fn hash_sequences(sequences: &[Sequence]) -> u128 {
    let mut bytes = Vec::new();
    for sequence in sequences {
        codec::put_bytes(&mut bytes, sequence.name.as_bytes());
        codec::put_value(&mut bytes, sequence.value.as_ref());
    }
    xxh3_128(&bytes)
}

fn hash_triggers(triggers: &[Trigger]) -> u128 {
    let mut bytes = Vec::new();
    for trigger in triggers {
        codec::put_bytes(&mut bytes, trigger.name.as_bytes());
        codec::put_bytes(&mut bytes, trigger.sql.as_bytes());
    }
    xxh3_128(&bytes)
}
