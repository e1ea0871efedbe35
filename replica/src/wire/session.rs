//! Forwarded sessions: statements one way, results the other.

use std::time::Duration;

use tidegate_engine::result::{Column, Described, Params, ResultSet};
use tidegate_engine::session::SessionState;
use tidegate_engine::statement_gate::SessionValues;
use tidegate_engine::{Error as EngineError, Seq, Value};
use tidegate_proto::peer::v1 as pb;
use tidegate_proto::peer::v1::session_reply::Kind as ReplyKind;
use tidegate_proto::peer::v1::session_request::Kind as RequestKind;
use tidegate_proto::peer::v1::session_value::Kind as ValueKind;

use super::{put_text, seq};
use crate::error::{Error, Result};

/// What a session is asked.
#[derive(Debug, Clone)]
pub enum Call {
    /// May this node forward to you?
    Open {
        /// The cluster that the asking node belongs to.
        cluster: String,
        /// The asking node.
        node: String,
    },
    /// Run one statement.
    Execute {
        /// Its text.
        sql: String,
        /// Values of its parameters.
        params: Params,
        /// The rows are wanted.
        wants_rows: bool,
    },
    /// Run several.
    Script(String),
    /// What would this statement be?
    Describe(String),
    /// The end.
    Close,
}

/// A call with what the session knows, which is given outside a transaction only.
#[derive(Debug, Clone)]
pub struct SessionCall {
    /// What the session knows.
    pub state: Option<SessionState>,
    /// What is asked.
    pub call: Call,
}

/// What a session answers.
#[derive(Debug, Clone)]
pub enum Answer {
    /// It is open, at the node of this name.
    Opened(String),
    /// A statement's result.
    Result(ResultSet),
    /// A script ran to its end.
    Done,
    /// What a statement would be.
    Description(Described),
    /// The call failed.
    Failed(Failure),
}

/// An error as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// A stable word.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// The same call may succeed later.
    pub retryable: bool,
}

/// An answer with what the session is like afterwards.
#[derive(Debug, Clone)]
pub struct SessionAnswer {
    /// No transaction is open.
    pub is_autocommit: bool,
    /// What the session knows.
    pub state: SessionState,
    /// Where everything it did is committed; `None` inside a transaction.
    pub position: Option<Seq>,
    /// The answer.
    pub answer: Answer,
}

impl SessionCall {
    /// For the wire.
    pub fn encode(self) -> pb::SessionRequest {
        let kind = match self.call {
            Call::Open { cluster, node } => RequestKind::Open(pb::SessionOpen {
                cluster_id: cluster,
                node_id: node,
            }),
            Call::Execute {
                sql,
                params,
                wants_rows,
            } => RequestKind::Execute(put_execute(sql, params, wants_rows)),
            Call::Script(sql) => RequestKind::Script(pb::SessionScript { sql }),
            Call::Describe(sql) => RequestKind::Describe(pb::SessionDescribe { sql }),
            Call::Close => RequestKind::Close(pb::SessionClose {}),
        };
        pb::SessionRequest {
            state: self.state.map(put_state),
            kind: Some(kind),
        }
    }

    /// From the wire.
    pub fn decode(request: pb::SessionRequest) -> Result<Self> {
        let call = match request.kind {
            Some(RequestKind::Open(open)) => Call::Open {
                cluster: open.cluster_id,
                node: open.node_id,
            },
            Some(RequestKind::Execute(execute)) => take_execute(execute)?,
            Some(RequestKind::Script(script)) => Call::Script(script.sql),
            Some(RequestKind::Describe(describe)) => Call::Describe(describe.sql),
            Some(RequestKind::Close(_)) => Call::Close,
            Some(RequestKind::Part(_)) => return Err(Error::protocol("a part within parts")),
            None => return Err(Error::protocol("a request of an unknown kind")),
        };
        Ok(Self {
            state: request.state.map(take_state),
            call,
        })
    }
}

impl SessionAnswer {
    /// For the wire.
    pub fn encode(self) -> pb::SessionReply {
        let kind = match self.answer {
            Answer::Opened(node) => ReplyKind::Opened(pb::SessionOpened { node_id: node }),
            Answer::Result(result) => ReplyKind::Result(put_result(result)),
            Answer::Done => ReplyKind::Done(pb::SessionDone {}),
            Answer::Description(described) => ReplyKind::Description(put_description(described)),
            Answer::Failed(failure) => ReplyKind::Error(pb::SessionError {
                code: failure.code,
                message: put_text(&failure.message),
                retryable: failure.retryable,
            }),
        };
        pb::SessionReply {
            is_autocommit: self.is_autocommit,
            state: Some(put_state(self.state)),
            position: self.position.map_or(0, Seq::get),
            kind: Some(kind),
        }
    }

    /// From the wire.
    pub fn decode(reply: pb::SessionReply) -> Result<Self> {
        let position = seq("position", reply.position)?;
        let position = (position > Seq::default()).then_some(position);
        let answer = match reply.kind {
            Some(ReplyKind::Opened(opened)) => Answer::Opened(opened.node_id),
            Some(ReplyKind::Result(result)) => Answer::Result(ResultSet {
                position,
                ..take_result(result)
            }),
            Some(ReplyKind::Done(_)) => Answer::Done,
            Some(ReplyKind::Description(description)) => {
                Answer::Description(take_description(description))
            }
            Some(ReplyKind::Error(error)) => Answer::Failed(Failure {
                code: error.code,
                message: error.message,
                retryable: error.retryable,
            }),
            Some(ReplyKind::Part(_)) => return Err(Error::protocol("a part within parts")),
            None => return Err(Error::protocol("a reply of an unknown kind")),
        };
        Ok(Self {
            is_autocommit: reply.is_autocommit,
            state: reply.state.map(take_state).unwrap_or_default(),
            position,
            answer,
        })
    }
}

impl Failure {
    /// With a code of its own.
    pub fn new(code: &str, message: impl Into<String>, retryable: bool) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
            retryable,
        }
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::new(error.code(), error.to_string(), error.is_retryable())
    }
}

fn put_state(state: SessionState) -> pb::SessionState {
    pb::SessionState {
        foreign_keys: state.foreign_keys,
        begin_immediate: state.begin_immediate,
        last_insert_rowid: state.values.last_insert_rowid,
        changes: state.values.changes,
        total_changes: state.values.total_changes,
    }
}

fn take_state(state: pb::SessionState) -> SessionState {
    SessionState {
        foreign_keys: state.foreign_keys,
        begin_immediate: state.begin_immediate,
        values: SessionValues {
            last_insert_rowid: state.last_insert_rowid,
            changes: state.changes,
            total_changes: state.total_changes,
        },
    }
}

fn put_execute(sql: String, params: Params, wants_rows: bool) -> pb::SessionExecute {
    let (names, named): (Vec<_>, Vec<_>) = params.named.into_iter().unzip();
    pb::SessionExecute {
        sql,
        positional: params.positional.into_iter().map(put_value).collect(),
        names,
        named: named.into_iter().map(put_value).collect(),
        wants_rows,
    }
}

fn take_execute(execute: pb::SessionExecute) -> Result<Call> {
    if execute.names.len() != execute.named.len() {
        return Err(Error::invalid("names", "is not as long as named"));
    }
    let named = execute.named.into_iter().map(take_value);
    Ok(Call::Execute {
        sql: execute.sql,
        params: Params {
            positional: execute.positional.into_iter().map(take_value).collect(),
            named: execute.names.into_iter().zip(named).collect(),
        },
        wants_rows: execute.wants_rows,
    })
}

fn put_value(value: Value) -> pb::SessionValue {
    let kind = match value {
        Value::Null => None,
        Value::Integer(integer) => Some(ValueKind::Integer(integer)),
        Value::Real(real) => Some(ValueKind::Real(real)),
        Value::Text(text) => Some(ValueKind::Text(text)),
        Value::Blob(blob) => Some(ValueKind::Blob(blob)),
    };
    pb::SessionValue { kind }
}

fn take_value(value: pb::SessionValue) -> Value {
    match value.kind {
        None => Value::Null,
        Some(ValueKind::Integer(integer)) => Value::Integer(integer),
        Some(ValueKind::Real(real)) => Value::Real(real),
        Some(ValueKind::Text(text)) => Value::Text(text),
        Some(ValueKind::Blob(blob)) => Value::Blob(blob),
    }
}

fn put_result(result: ResultSet) -> pb::SessionResult {
    let rows = result.rows.into_iter().map(|row| pb::SessionRow {
        values: row.into_iter().map(put_value).collect(),
    });
    pb::SessionResult {
        columns: result.columns.into_iter().map(put_column).collect(),
        rows: rows.collect(),
        changes: result.changes,
        last_insert_rowid: result.last_insert_rowid,
        rows_read: result.rows_read,
        rows_written: result.rows_written,
        elapsed_us: u64::try_from(result.elapsed.as_micros()).unwrap_or(u64::MAX),
    }
}

fn take_result(result: pb::SessionResult) -> ResultSet {
    let rows = result.rows.into_iter();
    let rows = rows.map(|row| row.values.into_iter().map(take_value).collect());
    ResultSet {
        columns: result.columns.into_iter().map(take_column).collect(),
        rows: rows.collect(),
        changes: result.changes,
        last_insert_rowid: result.last_insert_rowid,
        position: None,
        rows_read: result.rows_read,
        rows_written: result.rows_written,
        elapsed: Duration::from_micros(result.elapsed_us),
    }
}

fn put_column(column: Column) -> pb::SessionColumn {
    pb::SessionColumn {
        name: column.name,
        decltype: column.decltype,
    }
}

fn take_column(column: pb::SessionColumn) -> Column {
    Column {
        name: column.name,
        decltype: column.decltype,
    }
}

fn put_description(described: Described) -> pb::SessionDescription {
    let parameters = described.parameters.into_iter();
    pb::SessionDescription {
        columns: described.columns.into_iter().map(put_column).collect(),
        parameters: parameters.map(Option::unwrap_or_default).collect(),
        is_readonly: described.is_readonly,
        is_explain: described.is_explain,
    }
}

fn take_description(description: pb::SessionDescription) -> Described {
    let parameters = description.parameters.into_iter();
    Described {
        columns: description.columns.into_iter().map(take_column).collect(),
        parameters: parameters
            .map(|name| (!name.is_empty()).then_some(name))
            .collect(),
        is_readonly: description.is_readonly,
        is_explain: description.is_explain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_comes_back_as_it_was() {
        let values = vec![
            Value::Null,
            Value::Integer(i64::MIN),
            Value::Real(-0.0),
            Value::Text("a\0ü".into()),
            Value::Text(String::new()),
            Value::Blob(vec![0, 255]),
            Value::Blob(Vec::new()),
        ];
        let call = SessionCall {
            state: None,
            call: Call::Execute {
                sql: "SELECT ?".into(),
                params: Params {
                    positional: values.clone(),
                    named: vec![(":a".into(), Value::Integer(1))],
                },
                wants_rows: true,
            },
        };
        let decoded = SessionCall::decode(call.encode()).expect("valid");
        let Call::Execute { params, .. } = decoded.call else {
            panic!("another call");
        };
        assert_eq!(params.positional, values);
        assert_eq!(params.named, [(":a".to_owned(), Value::Integer(1))]);
        let answer = SessionAnswer {
            is_autocommit: true,
            state: SessionState::default(),
            position: Some(Seq::new(7)),
            answer: Answer::Result(ResultSet {
                rows: vec![values.clone()],
                ..ResultSet::default()
            }),
        };
        let decoded = SessionAnswer::decode(answer.encode()).expect("valid");
        let Answer::Result(result) = decoded.answer else {
            panic!("another answer");
        };
        assert_eq!(
            (result.rows, result.position),
            (vec![values], Some(Seq::new(7)))
        );
    }
}
