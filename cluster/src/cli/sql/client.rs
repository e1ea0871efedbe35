//! The shell's line to its node: one stream, kept by its baton.

use serde::Deserialize;
use serde_json::json;
use tidegate_engine::Value;

use crate::cli::Failure;
use crate::cli::address::Node;
use crate::front::hrana::value::WireValue;

/// A stream.
pub struct Client {
    node: Node,
    baton: Option<String>,
    in_transaction: bool,
}

/// The answer to a statement.
#[derive(Debug, Default)]
pub struct Answer {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<Value>>,
    /// Rows changed.
    pub changes: u64,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Refusal {
    /// The statement failed.
    Sql {
        /// A word for programs.
        code: String,
        /// A sentence for people.
        message: String,
    },
    /// The node cannot be asked.
    Node(Failure),
}

impl Client {
    /// A stream that is opened with the first statement.
    pub fn new(node: Node) -> Self {
        Self {
            node,
            baton: None,
            in_transaction: false,
        }
    }

    /// The node's address.
    pub fn base(&self) -> &str {
        self.node.base()
    }

    /// True while a transaction is open.
    pub fn in_transaction(&self) -> bool {
        self.in_transaction
    }

    /// Runs one statement.
    pub async fn execute(&mut self, sql: &str) -> Result<Answer, Refusal> {
        let stmt = json!({"sql": sql, "want_rows": true});
        let body = json!({
            "baton": self.baton.take(),
            "requests": [{"type": "execute", "stmt": stmt}, {"type": "get_autocommit"}],
        });
        // /v2 writes infinities as numbers; /v3 would lose them.
        let posted = self.node.post("/v2/pipeline", body.to_string()).await;
        let (status, text) = posted.map_err(Refusal::Node)?;
        let was_open = std::mem::take(&mut self.in_transaction);
        if status != 200 {
            return Err(self.failed(status, &text, was_open));
        }
        let wire: WirePipeline<'_> = serde_json::from_str(&text).map_err(|e| self.garbled(e))?;
        self.baton = wire.baton;
        let mut results = wire.results.into_iter();
        let first = results.next();
        let state = results.next().and_then(|result| result.response);
        self.in_transaction = state.is_some_and(|r| r.is_autocommit == Some(false));
        match first {
            Some(WireResult {
                response:
                    Some(WireResponse {
                        result: Some(result),
                        ..
                    }),
                ..
            }) => result.decode().map_err(|e| self.garbled(e)),
            Some(WireResult {
                error: Some(error), ..
            }) => Err(Refusal::Sql {
                code: error.code.unwrap_or_default(),
                message: error.message,
            }),
            _ => Err(self.garbled("no result")),
        }
    }

    /// Closes the stream, which rolls back what is open.
    pub async fn close(mut self) {
        if let Some(baton) = self.baton.take() {
            let body = json!({"baton": baton, "requests": [{"type": "close"}]});
            self.node.post("/v2/pipeline", body.to_string()).await.ok();
        }
    }

    fn failed(&self, status: u16, text: &str, was_open: bool) -> Refusal {
        match serde_json::from_str::<WireError>(text) {
            Ok(error) => Refusal::Sql {
                code: error.code.unwrap_or_default(),
                message: match was_open {
                    true => format!("{} (the transaction is gone)", error.message),
                    false => error.message,
                },
            },
            Err(_) => Refusal::Node(Failure::usage(format!(
                "{} answered {status}, which is not Hrana: {}",
                self.base(),
                text.lines().next().unwrap_or_default()
            ))),
        }
    }

    fn garbled(&self, what: impl std::fmt::Display) -> Refusal {
        let message = format!("{} gave an answer that makes no sense: {what}", self.base());
        Refusal::Node(Failure::failed(message))
    }
}

#[derive(Deserialize)]
struct WirePipeline<'a> {
    baton: Option<String>,
    #[serde(borrow)]
    results: Vec<WireResult<'a>>,
}

#[derive(Deserialize)]
struct WireResult<'a> {
    #[serde(borrow)]
    response: Option<WireResponse<'a>>,
    error: Option<WireError>,
}

#[derive(Deserialize)]
struct WireResponse<'a> {
    #[serde(borrow)]
    result: Option<WireResultSet<'a>>,
    is_autocommit: Option<bool>,
}

#[derive(Deserialize)]
struct WireResultSet<'a> {
    cols: Vec<WireColumn>,
    #[serde(borrow)]
    rows: Vec<Vec<WireValue<'a>>>,
    affected_row_count: u64,
}

#[derive(Deserialize)]
struct WireColumn {
    name: Option<String>,
}

#[derive(Deserialize)]
struct WireError {
    message: String,
    code: Option<String>,
}

impl WireResultSet<'_> {
    fn decode(&self) -> Result<Answer, String> {
        let rows = self.rows.iter();
        let rows = rows.map(|row| row.iter().map(WireValue::decode).collect());
        let columns = self.cols.iter();
        Ok(Answer {
            columns: columns
                .map(|c| c.name.clone().unwrap_or_default())
                .collect(),
            rows: rows.collect::<Result<_, _>>()?,
            changes: self.affected_row_count,
        })
    }
}
