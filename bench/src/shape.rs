//! What one request asks for, and how its answer is checked.

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use hyper::body::Bytes;
use serde::{Deserialize, Serialize};

use crate::http::Connection;

/// Rows that reads choose from.
pub const ITEMS: u64 = 10_000;
/// Rows that one statement of [`prepare`] makes.
const ITEMS_PER_STATEMENT: u64 = 500;

/// The kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// One durable INSERT of about 170 bytes.
    Insert,
    /// One SELECT by key.
    Read,
    /// Ten SELECTs by key in one request.
    Read10,
    /// One request in five an INSERT, the others a SELECT.
    Mixed,
    /// A request that runs no SQL: what the server's HTTP costs by itself.
    Empty,
}

/// A request ready to be sent, and what its answer must hold.
pub struct Prepared {
    /// Path to post to; to get when there is no body.
    pub path: &'static str,
    /// The body, if it is a POST.
    pub body: Option<Bytes>,
    /// Text that the answer must contain.
    pub expects: String,
    /// True when it stores a row.
    pub is_insert: bool,
}

impl Shape {
    /// Request number `number` of client `client` in run `run`.
    pub fn request(self, run: u64, client: u64, number: u64) -> Prepared {
        let draw = scramble(run ^ client << 40 ^ number);
        match self {
            Self::Insert => insert(run, client, number),
            Self::Read => read(&[draw % ITEMS]),
            Self::Read10 => {
                let keys: Vec<_> = (0..10).map(|i| scramble(draw + i) % ITEMS).collect();
                read(&keys)
            }
            Self::Mixed if draw.is_multiple_of(5) => insert(run, client, number),
            Self::Mixed => read(&[draw / 5 % ITEMS]),
            Self::Empty => Prepared {
                path: "/v3",
                body: None,
                expects: String::new(),
                is_insert: false,
            },
        }
    }
}

impl Prepared {
    /// Checks an answer.
    pub fn verify(&self, status: u16, reply: &[u8]) -> Result<()> {
        let text = std::str::from_utf8(reply)?;
        ensure!(status == 200, "status {status}: {text}");
        ensure!(!text.contains("\"type\":\"error\""), "{text}");
        ensure!(text.contains(&self.expects), "wrong answer: {text}");
        Ok(())
    }
}

/// Makes the tables and the rows that reads choose from, unless they are there.
pub async fn prepare(connection: &mut Connection) -> Result<()> {
    for table in [
        "CREATE TABLE IF NOT EXISTS bench_items (id INTEGER PRIMARY KEY, name TEXT NOT NULL, \
         score REAL NOT NULL, body TEXT NOT NULL)",
        "CREATE TABLE IF NOT EXISTS bench_rows (id INTEGER PRIMARY KEY, run INTEGER NOT NULL, \
         name TEXT NOT NULL, score REAL NOT NULL, body TEXT NOT NULL)",
    ] {
        connection.scalar(table).await?;
    }
    let stored = connection
        .scalar("SELECT count(*) FROM bench_items")
        .await?;
    if stored == Some(ITEMS.cast_signed()) {
        return Ok(());
    }
    for first in (0..ITEMS).step_by(ITEMS_PER_STATEMENT as usize) {
        let mut sql =
            "INSERT OR REPLACE INTO bench_items (id, name, score, body) VALUES ".to_owned();
        for id in first..first + ITEMS_PER_STATEMENT {
            let comma = if id == first { "" } else { "," };
            write!(
                sql,
                "{comma}({id},'{}',{id}.5,'{}')",
                name_of(id),
                filler(id)
            )?;
        }
        connection.scalar(&sql).await?;
    }
    Ok(())
}

/// Rows of a run that are stored.
pub async fn stored_rows(connection: &mut Connection, run: u64) -> Result<u64> {
    let sql = format!("SELECT count(*) FROM bench_rows WHERE run = {run}");
    let count = connection.scalar(&sql).await?.unwrap_or(0);
    Ok(u64::try_from(count).unwrap_or(0))
}

/// A pipeline of statements, each with its arguments already in JSON.
pub fn pipeline(statements: &[(&str, String)]) -> Bytes {
    let mut body = String::with_capacity(512);
    body.push_str("{\"baton\":null,\"requests\":[");
    for (sql, args) in statements {
        let sql = serde_json::Value::from(*sql);
        write!(
            body,
            "{{\"type\":\"execute\",\"stmt\":{{\"sql\":{sql},\"args\":[{args}],\"want_rows\":true}}}},"
        )
        .expect("writing to a string");
    }
    body.push_str("{\"type\":\"close\"}]}");
    Bytes::from(body)
}

fn insert(run: u64, client: u64, number: u64) -> Prepared {
    let id = (run % 4_096) << 48 | client << 36 | number;
    let args = format!(
        "{{\"type\":\"integer\",\"value\":\"{id}\"}},{{\"type\":\"integer\",\"value\":\"{run}\"}},\
         {{\"type\":\"text\",\"value\":\"{}\"}},{{\"type\":\"float\",\"value\":{number}.25}},\
         {{\"type\":\"text\",\"value\":\"{}\"}}",
        name_of(number),
        filler(id)
    );
    let sql = "INSERT INTO bench_rows (id, run, name, score, body) VALUES (?, ?, ?, ?, ?)";
    Prepared {
        path: "/v3/pipeline",
        body: Some(pipeline(&[(sql, args)])),
        expects: "\"affected_row_count\":1".to_owned(),
        is_insert: true,
    }
}

fn read(keys: &[u64]) -> Prepared {
    let sql = "SELECT id, name, score, body FROM bench_items WHERE id = ?";
    let statement = |key: &u64| {
        let args = format!("{{\"type\":\"integer\",\"value\":\"{key}\"}}");
        (sql, args)
    };
    let statements: Vec<_> = keys.iter().map(statement).collect();
    let last = keys.last().expect("a read of something");
    Prepared {
        path: "/v3/pipeline",
        body: Some(pipeline(&statements)),
        expects: name_of(*last),
        is_insert: false,
    }
}

fn name_of(id: u64) -> String {
    format!("item-{id}")
}

/// About 110 bytes of text.
fn filler(id: u64) -> String {
    let mut text = String::with_capacity(128);
    for i in 0..7 {
        write!(text, "{:016x}", scramble(id + i)).expect("writing to a string");
    }
    text
}

fn scramble(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_valid_json_of_the_protocol() {
        for shape in [Shape::Insert, Shape::Read, Shape::Read10, Shape::Mixed] {
            for number in 0..20 {
                let body = shape.request(3, 2, number).body.unwrap();
                let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let requests = body["requests"].as_array().unwrap();
                assert_eq!(requests.last().unwrap()["type"], "close");
                assert_eq!(requests[0]["type"], "execute");
            }
        }
    }

    #[test]
    fn an_error_in_a_good_status_is_seen() {
        let read = Shape::Read.request(1, 1, 1);
        let good = format!("{{\"results\":[{{\"value\":\"{}\"}}]}}", read.expects);
        assert!(read.verify(200, good.as_bytes()).is_ok());
        assert!(read.verify(503, good.as_bytes()).is_err());
        assert!(read.verify(200, b"{}").is_err());
        let error = format!("{{\"type\":\"error\",\"x\":\"{}\"}}", read.expects);
        assert!(read.verify(200, error.as_bytes()).is_err());
    }
}
