//! Transactions over HTTP: as one batch with conditions, or step by step on a stream that a
//! baton carries from request to request.

use serde_json::{Value, json};

use crate::client::{Client, Outcome, failure_of, outcome_of};

/// A statement with its arguments.
pub type Statement = (String, Vec<Value>);

/// A stream: one session on the node, with a transaction of its own.
pub struct Stream {
    client: Client,
    base: String,
    baton: Value,
}

impl Client {
    /// Runs statements as one transaction in one request: each only when the one before it
    /// succeeded, COMMIT at the end, ROLLBACK otherwise.
    ///
    /// Acknowledged (without rows) when COMMIT was; indeterminate when its fate is unknown.
    pub async fn transaction(&self, statements: &[Statement]) -> Outcome {
        let body = json!({"baton": null, "requests": [
            {"type": "batch", "batch": {"steps": transaction_steps(statements)}},
            {"type": "close"},
        ]});
        match self.exchange(&self.url(), &body).await {
            Ok(body) => batch_outcome(&body["results"][0], statements.len() + 1),
            Err(outcome) => outcome,
        }
    }

    /// Opens a stream. Nothing is sent before the first statement.
    pub fn stream(&self) -> Stream {
        Stream {
            client: self.clone(),
            base: self.url(),
            baton: Value::Null,
        }
    }
}

impl Stream {
    /// Runs one statement in the stream's session.
    pub async fn execute(&mut self, sql: &str, args: &[Value]) -> Outcome {
        let request = json!({"type": "execute",
            "stmt": {"sql": sql, "args": args, "want_rows": true}});
        let body = json!({"baton": self.baton, "requests": [request]});
        match self.client.exchange(&self.base, &body).await {
            Ok(reply) => {
                self.baton = reply["baton"].clone();
                if let Some(base) = reply["base_url"].as_str() {
                    self.base = base.to_owned();
                }
                outcome_of(&reply["results"][0])
            }
            Err(outcome) => outcome,
        }
    }

    /// Ends the session; an open transaction is rolled back.
    pub async fn close(self) {
        if self.baton.is_null() {
            return;
        }
        let body = json!({"baton": self.baton, "requests": [{"type": "close"}]});
        // Nothing depends on the answer: a stream that is not closed ends by its idle limit.
        self.client.exchange(&self.base, &body).await.ok();
    }
}

/// `BEGIN IMMEDIATE`, the statements, `COMMIT`, and `ROLLBACK` if that did not happen.
fn transaction_steps(statements: &[Statement]) -> Vec<Value> {
    let step = |sql: &str, args: &[Value], condition: Value| {
        json!({"condition": condition,
        "stmt": {"sql": sql, "args": args, "want_rows": false}})
    };
    let mut steps = vec![step("BEGIN IMMEDIATE", &[], Value::Null)];
    for (sql, args) in statements {
        let condition = json!({"type": "ok", "step": steps.len() - 1});
        steps.push(step(sql, args, condition));
    }
    let commit = steps.len();
    steps.push(step(
        "COMMIT",
        &[],
        json!({"type": "ok", "step": commit - 1}),
    ));
    let not_committed = json!({"type": "not", "cond": {"type": "ok", "step": commit}});
    steps.push(step("ROLLBACK", &[], not_committed));
    steps
}

fn batch_outcome(result: &Value, commit: usize) -> Outcome {
    if result["type"] != "ok" {
        return outcome_of(result);
    }
    let result = &result["response"]["result"];
    if !result["step_results"][commit].is_null() {
        return Outcome::Acknowledged(Vec::new());
    }
    let errors = result["step_errors"].as_array();
    let first = errors.and_then(|errors| errors.iter().take(commit + 1).find(|e| !e.is_null()));
    first.map_or_else(
        || Outcome::Indeterminate("a batch without COMMIT and without an error".to_owned()),
        failure_of,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(step_results: Value, step_errors: Value) -> Value {
        json!({"type": "ok", "response": {"type": "batch",
            "result": {"step_results": step_results, "step_errors": step_errors}}})
    }

    #[test]
    fn a_batch_is_acknowledged_by_its_commit_only() {
        let done = reply(json!([{}, {}, {}, null]), json!([null, null, null, null]));
        assert!(batch_outcome(&done, 2).is_acknowledged());
        let error = json!({"code": "SQLITE_CONSTRAINT", "message": "no"});
        let failed = reply(
            json!([{}, null, null, {}]),
            json!([null, error, null, null]),
        );
        let expected = Outcome::Failed("SQLITE_CONSTRAINT".into(), "no".into());
        assert_eq!(batch_outcome(&failed, 2), expected);
        let unknown = json!({"code": "TIDEGATE_INDETERMINATE", "message": "?"});
        let lost = reply(
            json!([{}, {}, null, null]),
            json!([null, null, unknown, null]),
        );
        assert_eq!(batch_outcome(&lost, 2), Outcome::Indeterminate("?".into()));
    }

    #[test]
    fn every_step_waits_for_the_one_before() {
        let steps = transaction_steps(&[("SELECT 1".into(), vec![]), ("SELECT 2".into(), vec![])]);
        assert_eq!(steps.len(), 5);
        assert_eq!(steps[2]["condition"], json!({"type": "ok", "step": 1}));
        assert_eq!(steps[3]["stmt"]["sql"], "COMMIT");
        assert_eq!(steps[4]["condition"]["cond"]["step"], 3);
    }
}
