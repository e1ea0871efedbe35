//! What a copy knows about itself: the cluster it belongs to, and its floor.
//!
//! The **floor** is the lowest position from which this copy's log is complete: a follower
//! at P can be fed if P is not below it, and needs a snapshot otherwise. It is 0 only where
//! no user object existed when the history began, because a log says nothing of rows that
//! were there before it. Trimming raises it, in the transaction that deletes.
//!
//! Both live in `_tidegate_meta`, which is local to the node.

use crate::adapter::Connection;
use crate::change::Seq;
use crate::error::{Error, Result};
use crate::names;
use crate::value::Value;
use crate::view::Reads;

const CLUSTER_ID: &str = "cluster_id";
const FLOOR: &str = "floor";

/// A cluster's identity: made once, at the first opening of its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClusterId([u8; 16]);

impl ClusterId {
    /// A new one.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 16];
        fill_random(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// From its bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// From 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        u128::from_str_radix(text, 16)
            .ok()
            .map(|number| Self(number.to_be_bytes()))
    }
}

impl std::fmt::Display for ClusterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// The cluster this copy belongs to; `None` before it belongs to any.
pub fn cluster_id(source: &mut impl Reads) -> Result<Option<ClusterId>> {
    match read(source, CLUSTER_ID)? {
        None => Ok(None),
        Some(value) => value
            .as_text()
            .and_then(ClusterId::parse)
            .map(Some)
            .ok_or_else(|| Error::Corrupt(format!("{value:?} is not a cluster id"))),
    }
}

/// Joins a cluster. A copy that belongs to another one stays there: that is an error.
pub fn set_cluster_id(connection: &mut Connection, id: ClusterId) -> Result<()> {
    match cluster_id(connection)? {
        Some(present) if present == id => Ok(()),
        Some(present) => Err(Error::Diverging(format!(
            "this copy belongs to cluster {present}, not to {id}"
        ))),
        None => write(connection, CLUSTER_ID, &Value::Text(id.to_string())),
    }
}

/// The floor of this copy's log.
pub fn floor(source: &mut impl Reads) -> Result<Seq> {
    match read(source, FLOOR)? {
        None => Ok(Seq::ZERO),
        Some(value) => value
            .as_integer()
            .and_then(Seq::from_sql)
            .ok_or_else(|| Error::Corrupt(format!("{value:?} is not a floor"))),
    }
}

/// Raises the floor, inside the caller's transaction. It never falls.
pub fn raise_floor(connection: &mut Connection, to: Seq) -> Result<()> {
    let present = floor(connection)?;
    if to < present {
        return Err(Error::Fatal(format!(
            "the floor of the log would fall from {present} to {to}"
        )));
    }
    write(connection, FLOOR, &Value::Integer(to.to_sql()))
}

pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes).map_err(|e| Error::Io(format!("no randomness: {e}")))
}

fn read(source: &mut impl Reads, key: &str) -> Result<Option<Value>> {
    let sql = format!("SELECT value FROM {} WHERE key = ?", names::META_TABLE);
    let mut found = None;
    source.read(&sql, &[key.into()], |row| {
        found = Some(row.value(0)?);
        Ok(())
    })?;
    Ok(found)
}

fn write(connection: &mut Connection, key: &str, value: &Value) -> Result<()> {
    let delete = format!("DELETE FROM {} WHERE key = ?", names::META_TABLE);
    connection.execute(&delete, &[key.into()])?;
    let insert = format!(
        "INSERT INTO {}(key, value) VALUES (?, ?)",
        names::META_TABLE
    );
    connection.execute(&insert, &[key.into(), value.clone()])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_id_survives_its_text() {
        let id = ClusterId::random().unwrap();
        assert_eq!(ClusterId::parse(&id.to_string()), Some(id));
        assert_eq!(ClusterId::parse("+0000000000000000000000000000001"), None);
        assert_eq!(ClusterId::parse("12"), None);
    }
}
