//! Requests: parsed, then checked as a whole.
//!
//! The wire structures are flat, one for all types: serde's tagged enums buffer every value
//! before they know the type, which costs copies of large values and hides raw numbers.

use serde::Deserialize;
use std::borrow::Cow;
use tidegate_engine::Value;

use super::condition::{Condition, WireCondition};
use super::value::WireValue;

/// Most requests of one pipeline.
pub const PIPELINE_REQUESTS_MAX: usize = 10_000;
/// Most steps of one batch.
pub const BATCH_STEPS_MAX: usize = 100_000;

/// What a client asks of a stream.
#[derive(Debug, PartialEq)]
pub enum Request {
    /// Closes the stream.
    Close,
    /// Runs one statement.
    Execute(Statement),
    /// Runs statements under conditions.
    Batch(Batch),
    /// Runs a script, without rows.
    Sequence(Sql),
    /// Describes a statement without running it.
    Describe(Sql),
    /// Keeps a text under a number.
    StoreSql(i32, String),
    /// Forgets it.
    CloseSql(i32),
    /// Asks whether no transaction is open.
    GetAutocommit,
}

/// A text, given or stored before.
#[derive(Debug, PartialEq, Clone)]
pub enum Sql {
    /// Given.
    Text(String),
    /// Stored under this number.
    Stored(i32),
}

/// A statement with its arguments.
#[derive(Debug, PartialEq)]
pub struct Statement {
    /// The text.
    pub sql: Sql,
    /// Arguments by position.
    pub args: Vec<Value>,
    /// Arguments by name, as the client gave it, with or without prefix.
    pub named_args: Vec<(String, Value)>,
    /// False when the client wants no rows.
    pub want_rows: bool,
}

/// Statements under conditions.
#[derive(Debug, PartialEq)]
pub struct Batch {
    /// The steps in order.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Debug, PartialEq)]
pub struct Step {
    /// When it runs; always without one.
    pub condition: Option<Condition>,
    /// What it runs.
    pub statement: Statement,
}

/// A pipeline: requests for one stream.
#[derive(Debug, PartialEq)]
pub struct Pipeline {
    /// The stream, or a new one.
    pub baton: Option<String>,
    /// The requests in order.
    pub requests: Vec<Request>,
}

/// A batch whose results are streamed.
#[derive(Debug, PartialEq)]
pub struct CursorRequest {
    /// The stream, or a new one.
    pub baton: Option<String>,
    /// The batch.
    pub batch: Batch,
}

/// A body that is not a request. Nothing of it was run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed request: {0}")]
pub struct Malformed(pub String);

impl Pipeline {
    /// Parses and checks a body.
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let wire: WirePipeline<'_> = parse(body)?;
        if wire.requests.len() > PIPELINE_REQUESTS_MAX {
            return malformed(format!("more than {PIPELINE_REQUESTS_MAX} requests"));
        }
        let last = wire.requests.len().saturating_sub(1);
        let requests = wire.requests.into_iter().enumerate().map(|(at, wire)| {
            let request = wire.decode()?;
            if request == Request::Close && at != last {
                return malformed("`close` must be the last request");
            }
            Ok(request)
        });
        Ok(Self {
            baton: wire.baton,
            requests: requests.collect::<Result<_, _>>()?,
        })
    }
}

impl CursorRequest {
    /// Parses and checks a body.
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let wire: WireCursor<'_> = parse(body)?;
        Ok(Self {
            baton: wire.baton,
            batch: wire.batch.decode()?,
        })
    }
}

impl Statement {
    /// Parses the body of `/v1/execute`.
    pub fn parse_v1(body: &[u8]) -> Result<Self, Malformed> {
        parse::<WireV1Execute<'_>>(body)?.stmt.decode()
    }
}

impl Batch {
    /// Parses the body of `/v1/batch`.
    pub fn parse_v1(body: &[u8]) -> Result<Self, Malformed> {
        parse::<WireV1Batch<'_>>(body)?.batch.decode()
    }
}

/// A request as it is on the wire. WebSocket messages add ids beside these fields.
#[derive(Debug, Deserialize)]
pub struct WireRequest<'a> {
    /// The type.
    #[serde(borrow)]
    pub r#type: Cow<'a, str>,
    #[serde(borrow)]
    stmt: Option<WireStatement<'a>>,
    #[serde(borrow)]
    batch: Option<WireBatch<'a>>,
    sql: Option<String>,
    sql_id: Option<i32>,
    /// Stream of a WebSocket request.
    pub stream_id: Option<i32>,
    /// Cursor of a WebSocket request.
    pub cursor_id: Option<i32>,
    /// Entries wanted from a cursor.
    pub max_count: Option<u32>,
}

impl<'a> WireRequest<'a> {
    /// The request, checked.
    pub fn decode(self) -> Result<Request, Malformed> {
        Ok(match self.r#type.as_ref() {
            "close" => Request::Close,
            "execute" => match self.stmt {
                Some(stmt) => Request::Execute(stmt.decode()?),
                None => return malformed("`execute` lacks `stmt`"),
            },
            "batch" => Request::Batch(self.into_batch()?),
            "sequence" => Request::Sequence(sql(self.sql, self.sql_id)?),
            "describe" => Request::Describe(sql(self.sql, self.sql_id)?),
            "store_sql" => match (self.sql_id, self.sql) {
                (Some(id), Some(sql)) => Request::StoreSql(id, sql),
                _ => return malformed("`store_sql` needs `sql_id` and `sql`"),
            },
            "close_sql" => match self.sql_id {
                Some(id) => Request::CloseSql(id),
                None => return malformed("`close_sql` needs `sql_id`"),
            },
            "get_autocommit" => Request::GetAutocommit,
            other => return malformed(format!("`{other}` is not a type of request")),
        })
    }

    /// The batch of a `batch` or `open_cursor` request.
    pub fn into_batch(self) -> Result<Batch, Malformed> {
        match self.batch {
            Some(batch) => batch.decode(),
            None => malformed(format!("`{}` lacks `batch`", self.r#type)),
        }
    }
}

/// Parses JSON of a wire structure.
pub fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Malformed> {
    serde_json::from_slice(body).map_err(|e| Malformed(e.to_string()))
}

#[derive(Deserialize)]
struct WirePipeline<'a> {
    baton: Option<String>,
    #[serde(borrow)]
    requests: Vec<WireRequest<'a>>,
}

#[derive(Deserialize)]
struct WireCursor<'a> {
    baton: Option<String>,
    #[serde(borrow)]
    batch: WireBatch<'a>,
}

#[derive(Deserialize)]
struct WireV1Execute<'a> {
    #[serde(borrow)]
    stmt: WireStatement<'a>,
}

#[derive(Deserialize)]
struct WireV1Batch<'a> {
    #[serde(borrow)]
    batch: WireBatch<'a>,
}

#[derive(Debug, Deserialize)]
struct WireStatement<'a> {
    sql: Option<String>,
    sql_id: Option<i32>,
    #[serde(borrow)]
    args: Option<Vec<WireValue<'a>>>,
    #[serde(borrow)]
    named_args: Option<Vec<WireNamed<'a>>>,
    want_rows: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct WireNamed<'a> {
    name: String,
    #[serde(borrow)]
    value: WireValue<'a>,
}

#[derive(Debug, Deserialize)]
struct WireBatch<'a> {
    #[serde(borrow)]
    steps: Vec<WireStep<'a>>,
}

#[derive(Debug, Deserialize)]
struct WireStep<'a> {
    #[serde(borrow)]
    condition: Option<WireCondition<'a>>,
    #[serde(borrow)]
    stmt: WireStatement<'a>,
}

impl WireStatement<'_> {
    fn decode(self) -> Result<Statement, Malformed> {
        let args = self.args.unwrap_or_default();
        let args = args.iter().map(|value| value.decode().map_err(Malformed));
        let named = self.named_args.unwrap_or_default();
        let named = named.into_iter().map(|arg| {
            let value = arg.value.decode().map_err(Malformed)?;
            Ok((arg.name, value))
        });
        Ok(Statement {
            sql: sql(self.sql, self.sql_id)?,
            args: args.collect::<Result<_, _>>()?,
            named_args: named.collect::<Result<_, Malformed>>()?,
            want_rows: self.want_rows.unwrap_or(true),
        })
    }
}

impl WireBatch<'_> {
    fn decode(self) -> Result<Batch, Malformed> {
        if self.steps.len() > BATCH_STEPS_MAX {
            return malformed(format!("more than {BATCH_STEPS_MAX} steps"));
        }
        let steps = self.steps.into_iter().enumerate().map(|(own, step)| {
            let condition = step.condition.map(|wire| wire.decode(own));
            Ok(Step {
                condition: condition.transpose().map_err(Malformed)?,
                statement: step.stmt.decode()?,
            })
        });
        Ok(Batch {
            steps: steps.collect::<Result<_, Malformed>>()?,
        })
    }
}

fn sql(text: Option<String>, id: Option<i32>) -> Result<Sql, Malformed> {
    match (text, id) {
        (Some(text), None) => Ok(Sql::Text(text)),
        (None, Some(id)) => Ok(Sql::Stored(id)),
        _ => malformed("exactly one of `sql` and `sql_id` must be given"),
    }
}

fn malformed<T>(message: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed(message.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(json: &str) -> Result<Vec<Request>, Malformed> {
        let body = format!(r#"{{"baton":null,"requests":[{json}]}}"#);
        Pipeline::parse(body.as_bytes()).map(|pipeline| pipeline.requests)
    }

    #[test]
    fn a_statement_has_text_arguments_and_a_wish_for_rows() {
        let parsed = requests(
            r#"{"type":"execute","stmt":{"sql":"SELECT ?","args":[{"type":"integer","value":"7"}],
                "named_args":[{"name":":a","value":{"type":"null"}}],"want_rows":false}}"#,
        );
        let statement = Statement {
            sql: Sql::Text("SELECT ?".into()),
            args: vec![Value::Integer(7)],
            named_args: vec![(":a".into(), Value::Null)],
            want_rows: false,
        };
        assert_eq!(parsed, Ok(vec![Request::Execute(statement)]));
    }

    #[test]
    fn every_type_of_request_is_known() {
        let parsed = requests(
            r#"{"type":"store_sql","sql_id":1,"sql":"SELECT 1"},{"type":"sequence","sql_id":1},
               {"type":"describe","sql":"SELECT 1"},{"type":"close_sql","sql_id":1},
               {"type":"get_autocommit"},{"type":"batch","batch":{"steps":[]}},{"type":"close"}"#,
        );
        assert_eq!(parsed.expect("valid").len(), 7);
    }

    #[test]
    fn a_malformed_part_refuses_the_whole() {
        for json in [
            r#"{"type":"execute"}"#,
            r#"{"type":"dance"}"#,
            r#"{"type":"close"},{"type":"get_autocommit"}"#,
            r#"{"type":"execute","stmt":{"sql":"x","sql_id":1}}"#,
            r#"{"type":"execute","stmt":{}}"#,
            r#"{"type":"execute","stmt":{"sql":"\ud800"}}"#,
            r#"{"type":"batch","batch":{"steps":[{"condition":{"type":"ok","step":0},
                "stmt":{"sql":"x"}}]}}"#,
        ] {
            assert!(requests(json).is_err(), "{json}");
        }
        assert!(Pipeline::parse(b"[").is_err());
        assert!(Pipeline::parse(b"{}").is_err());
        let deep = "[".repeat(100_000);
        assert!(Pipeline::parse(deep.as_bytes()).is_err());
    }
}
