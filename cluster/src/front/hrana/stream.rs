//! A stream: one session with the texts stored on it, and how it answers requests.

use std::collections::HashMap;

use tidegate_engine::Seq;
use tidegate_engine::result::{Described, Params, ResultSet};

use super::Dialect;
use super::error::WireError;
use super::request::{Batch, Request, Sql, Statement};
use super::response;
use crate::forward::Session;

/// Most texts stored on one stream (one connection of a WebSocket).
const STORED_SQL_MAX: usize = 1_024;
/// Most bytes of them.
const STORED_SQL_BYTES_MAX: usize = 16 << 20;

/// Texts stored by number.
#[derive(Debug, Default)]
pub struct StoredSql {
    texts: HashMap<i32, String>,
    bytes: usize,
}

/// One client's line of requests.
pub struct Stream {
    session: Session,
    stored: StoredSql,
}

/// A reply under construction.
pub struct Reply {
    /// The bytes so far.
    pub out: Vec<u8>,
    /// How values are written.
    pub dialect: Dialect,
    /// The newest position that an answer stands for.
    pub position: Option<Seq>,
    /// This node has applied what the answers stand for.
    pub applied: bool,
    bytes_max: usize,
}

impl Reply {
    /// An empty reply that may grow to about this size.
    pub fn new(dialect: Dialect, bytes_max: usize) -> Self {
        Self {
            out: Vec::with_capacity(512),
            dialect,
            position: None,
            applied: true,
            bytes_max,
        }
    }

    /// Refuses to run more once the reply is full.
    fn check_room(&self) -> Result<(), WireError> {
        if self.out.len() <= self.bytes_max {
            return Ok(());
        }
        Err(WireError::new(
            "TIDEGATE_TOO_LARGE",
            format!(
                "the reply already holds more than {} bytes: send fewer statements at a time. \
                 This one was not run",
                self.bytes_max
            ),
        ))
    }
}

impl StoredSql {
    /// Stores a text; a number in use is replaced.
    pub fn store(&mut self, id: i32, sql: String) -> Result<(), WireError> {
        self.close(id);
        if self.texts.len() >= STORED_SQL_MAX || self.bytes + sql.len() > STORED_SQL_BYTES_MAX {
            return Err(WireError::new(
                "TIDEGATE_TOO_LARGE",
                format!(
                    "a stream stores at most {STORED_SQL_MAX} texts and {STORED_SQL_BYTES_MAX} \
                     bytes: close some first"
                ),
            ));
        }
        self.bytes += sql.len();
        self.texts.insert(id, sql);
        Ok(())
    }

    /// Forgets a text; an unknown number is no error.
    pub fn close(&mut self, id: i32) {
        if let Some(sql) = self.texts.remove(&id) {
            self.bytes -= sql.len();
        }
    }

    /// The text, given or stored.
    pub fn resolve<'a>(&'a self, sql: &'a Sql) -> Result<&'a str, WireError> {
        match sql {
            Sql::Text(text) => Ok(text),
            Sql::Stored(id) => self.texts.get(id).map(String::as_str).ok_or_else(|| {
                WireError::new("SQLITE_ERROR", format!("no SQL text is stored as {id}"))
            }),
        }
    }
}

impl Stream {
    /// Around a fresh session.
    pub fn new(session: Session) -> Self {
        Self {
            session,
            stored: StoredSql::default(),
        }
    }

    /// True while no transaction is open.
    pub fn is_autocommit(&self) -> bool {
        self.session.is_autocommit()
    }

    /// True when nothing would be missed if the stream were closed between two requests.
    pub fn is_stateless(&self) -> bool {
        self.is_autocommit() && self.stored.texts.is_empty()
    }

    /// Rolls back what is open.
    pub async fn close(self) {
        self.session.close().await;
    }

    /// Answers one request of a pipeline with one result.
    pub async fn answer(&mut self, request: Request, reply: &mut Reply) {
        let start = reply.out.len();
        if let Err(error) = self.try_answer(request, reply).await {
            reply.out.truncate(start);
            response::write_failed(&mut reply.out, &error);
        }
    }

    /// Runs one statement.
    pub async fn execute(
        &mut self,
        statement: Statement,
        reply: &mut Reply,
    ) -> Result<ResultSet, WireError> {
        reply.check_room()?;
        let sql = self.stored.resolve(&statement.sql)?;
        let params = Params {
            positional: statement.args,
            named: statement.named_args,
        };
        let outcome = self.session.execute(sql, params, statement.want_rows).await;
        reply.applied &= self.session.is_applied();
        let result = outcome?;
        reply.position = reply.position.max(result.position);
        Ok(result)
    }

    /// Runs a batch and writes `{"step_results":…,"step_errors":…}`.
    pub async fn batch(&mut self, batch: Batch, reply: &mut Reply) {
        let mut succeeded = Vec::with_capacity(batch.steps.len());
        let mut errors = Vec::new();
        reply.out.extend_from_slice(br#"{"step_results":["#);
        for (index, step) in batch.steps.into_iter().enumerate() {
            if index > 0 {
                reply.out.push(b',');
                errors.push(b',');
            }
            let runs = step
                .condition
                .is_none_or(|c| c.holds(&succeeded, self.is_autocommit()));
            let outcome = match runs {
                true => Some(self.execute(step.statement, reply).await),
                false => None,
            };
            succeeded.push(matches!(outcome, Some(Ok(_))));
            match &outcome {
                Some(Ok(result)) => {
                    response::write_result(&mut reply.out, result, reply.dialect);
                }
                _ => reply.out.extend_from_slice(b"null"),
            }
            match &outcome {
                Some(Err(error)) => error.write(&mut errors),
                _ => errors.extend_from_slice(b"null"),
            }
        }
        reply.out.extend_from_slice(br#"],"step_errors":["#);
        reply.out.append(&mut errors);
        reply.out.extend_from_slice(b"]}");
    }

    /// Runs a script.
    pub async fn sequence(&mut self, sql: &Sql, reply: &mut Reply) -> Result<(), WireError> {
        let sql = self.stored.resolve(sql)?;
        let outcome = self.session.execute_script(sql).await;
        reply.applied &= self.session.is_applied();
        outcome
    }

    /// Describes a statement.
    pub async fn describe(&mut self, sql: &Sql) -> Result<Described, WireError> {
        let sql = self.stored.resolve(sql)?;
        self.session.describe(sql).await
    }

    async fn try_answer(&mut self, request: Request, reply: &mut Reply) -> Result<(), WireError> {
        match request {
            Request::Execute(statement) => {
                let result = self.execute(statement, reply).await?;
                let dialect = reply.dialect;
                response::write_ok(&mut reply.out, "execute", |out| {
                    out.extend_from_slice(br#","result":"#);
                    response::write_result(out, &result, dialect);
                });
            }
            Request::Batch(batch) => {
                let head = br#"{"type":"ok","response":{"type":"batch","result":"#;
                reply.out.extend_from_slice(head);
                self.batch(batch, reply).await;
                reply.out.extend_from_slice(b"}}");
            }
            Request::Sequence(sql) => {
                self.sequence(&sql, reply).await?;
                response::write_ok(&mut reply.out, "sequence", |_| ());
            }
            Request::Describe(sql) => {
                let described = self.describe(&sql).await?;
                response::write_ok(&mut reply.out, "describe", |out| {
                    out.extend_from_slice(br#","result":"#);
                    response::write_described(out, &described);
                });
            }
            Request::StoreSql(id, sql) => {
                self.stored.store(id, sql)?;
                response::write_ok(&mut reply.out, "store_sql", |_| ());
            }
            Request::CloseSql(id) => {
                self.stored.close(id);
                response::write_ok(&mut reply.out, "close_sql", |_| ());
            }
            Request::GetAutocommit => {
                let autocommit = self.is_autocommit();
                response::write_ok(&mut reply.out, "get_autocommit", |out| {
                    response::write_flag(out, "is_autocommit", autocommit);
                });
            }
            Request::Close => response::write_ok(&mut reply.out, "close", |_| ()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_texts_are_found_replaced_forgotten_and_bounded() {
        let mut stored = StoredSql::default();
        stored.store(1, "SELECT 1".into()).expect("room");
        stored.store(1, "SELECT 2".into()).expect("replaces");
        assert_eq!(stored.resolve(&Sql::Stored(1)), Ok("SELECT 2"));
        stored.close(1);
        stored.close(1);
        assert!(stored.resolve(&Sql::Stored(1)).is_err());
        assert_eq!(stored.bytes, 0);
        let large = "x".repeat(STORED_SQL_BYTES_MAX);
        stored.store(2, large).expect("just fits");
        assert!(stored.store(3, "y".into()).is_err());
    }
}
