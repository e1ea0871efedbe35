//! A small client of the daemon's listeners, for tests that need to see everything a reply
//! says. Applications use the published clients; see `e2e/clients`.

use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::{Value, json};

/// A client of one node.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    ports: [u16; 3],
}

/// What became of a statement, as its client knows it.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Answered with a result: rows of values in the protocol's form.
    Acknowledged(Vec<Vec<Value>>),
    /// Answered with an error: certainly not executed. Code and message.
    Failed(String, String),
    /// No answer, or one that says that the outcome is not known.
    Indeterminate(String),
}

impl Outcome {
    /// Rows of an acknowledged statement; an error otherwise.
    pub fn rows(self) -> Result<Vec<Vec<Value>>> {
        match self {
            Self::Acknowledged(rows) => Ok(rows),
            other => anyhow::bail!("not acknowledged: {other:?}"),
        }
    }

    /// True when the statement was answered with a result.
    pub fn is_acknowledged(&self) -> bool {
        matches!(self, Self::Acknowledged(_))
    }
}

impl Client {
    /// A client of the node with these client, peer and health ports.
    pub fn new(ports: [u16; 3]) -> Self {
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(60))
            .tcp_nodelay(true)
            .build()
            .expect("a client without TLS needs nothing from outside");
        Self { http, ports }
    }

    /// Address of the client listener.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0])
    }

    /// Address of the health listener.
    pub fn health_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[2])
    }

    /// Runs one statement in autocommit.
    pub async fn execute(&self, sql: &str, args: &[Value]) -> Outcome {
        let mut outcomes = self.pipeline(&[(sql, args)]).await;
        outcomes.pop().expect("one outcome for one statement")
    }

    /// Runs statements one after the other in one request, on one stream.
    pub async fn pipeline(&self, statements: &[(&str, &[Value])]) -> Vec<Outcome> {
        let mut requests: Vec<_> = statements
            .iter()
            .map(|(sql, args)| json!({"type": "execute", "stmt": {"sql": sql, "args": args, "want_rows": true}}))
            .collect();
        requests.push(json!({"type": "close"}));
        let body = json!({"baton": null, "requests": requests});
        match self.exchange(&self.url(), &body).await {
            Ok(body) => (0..statements.len())
                .map(|i| outcome_of(&body["results"][i]))
                .collect(),
            Err(outcome) => vec![outcome; statements.len()],
        }
    }

    /// Sends one pipeline request. `Err` when there is no reply with results in it: what
    /// became of everything in the request.
    pub(crate) async fn exchange(&self, base: &str, body: &Value) -> Result<Value, Outcome> {
        match self.post_to(&format!("{base}/v3/pipeline"), body).await {
            Ok((_, body)) if body["results"].is_array() => Ok(body),
            Ok((status, body)) => {
                let code = body["code"].as_str().unwrap_or_default().to_owned();
                let refused = matches!(status, 429 | 503) || code == "TIDEGATE_OVERLOADED";
                if refused && code != "TIDEGATE_INDETERMINATE" {
                    Err(Outcome::Failed(code, body.to_string()))
                } else {
                    Err(Outcome::Indeterminate(format!("{status}: {body}")))
                }
            }
            // A refused connection never carried the request.
            Err(error) if is_connect(&error) => {
                Err(Outcome::Failed("CONNECT".into(), error.to_string()))
            }
            Err(error) => Err(Outcome::Indeterminate(format!("{error:#}"))),
        }
    }

    /// Posts JSON to the client listener: status and body.
    pub async fn post(&self, path: &str, body: &Value) -> Result<(u16, Value)> {
        self.post_to(&format!("{}{path}", self.url()), body).await
    }

    async fn post_to(&self, url: &str, body: &Value) -> Result<(u16, Value)> {
        let response = self.http.post(url).json(body).send().await?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        Ok((
            status,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        ))
    }

    /// Gets a path of the health listener: status and text.
    pub async fn health(&self, path: &str) -> Result<(u16, String)> {
        let url = format!("{}{path}", self.health_url());
        let response = self.http.get(url).send().await?;
        let status = response.status().as_u16();
        Ok((status, response.text().await?))
    }

    /// Gets JSON from the health listener.
    pub async fn health_json(&self, path: &str) -> Result<Value> {
        let (_, text) = self.health(path).await?;
        serde_json::from_str(&text).with_context(|| format!("{path}: {text}"))
    }

    /// True when `/readyz` answers 200.
    pub async fn is_ready(&self) -> bool {
        matches!(self.health("/readyz").await, Ok((200, _)))
    }

    /// The text of `/readyz?verbose`, or why there is none.
    pub async fn readyz_verbose(&self) -> String {
        match self.health("/readyz?verbose").await {
            Ok((status, text)) => format!("{status}\n{text}"),
            Err(error) => format!("{error:#}"),
        }
    }
}

/// A value in the protocol's form.
pub fn integer(value: i64) -> Value {
    json!({"type": "integer", "value": value.to_string()})
}

/// A value in the protocol's form.
pub fn text(value: &str) -> Value {
    json!({"type": "text", "value": value})
}

/// A value in the protocol's form.
pub fn blob(bytes: &[u8]) -> Value {
    json!({"type": "blob", "base64": STANDARD_NO_PAD.encode(bytes)})
}

/// Reads an integer in the protocol's form.
pub fn as_integer(value: &Value) -> Option<i64> {
    value["value"].as_str()?.parse().ok()
}

pub(crate) fn outcome_of(result: &Value) -> Outcome {
    if result["type"] == "ok" {
        let rows = result["response"]["result"]["rows"].as_array();
        let rows = rows.map_or_else(Vec::new, |rows| {
            rows.iter()
                .map(|row| row.as_array().cloned().unwrap_or_default())
                .collect()
        });
        return Outcome::Acknowledged(rows);
    }
    if result.is_null() {
        return Outcome::Indeterminate("no result".to_owned());
    }
    failure_of(&result["error"])
}

/// What an error object of the protocol says about its statement.
pub(crate) fn failure_of(error: &Value) -> Outcome {
    let word = |name: &str| error[name].as_str().unwrap_or("?").to_owned();
    let (code, message) = (word("code"), word("message"));
    if code == "TIDEGATE_INDETERMINATE" {
        Outcome::Indeterminate(message)
    } else {
        Outcome::Failed(code, message)
    }
}

fn is_connect(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<reqwest::Error>()
        .is_some_and(reqwest::Error::is_connect)
}
