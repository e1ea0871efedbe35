//! Where a command finds its node.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::Failure;

/// Client address of a node with default settings.
pub const CLIENT_DEFAULT: &str = "http://127.0.0.1:8080";
/// Its health address.
pub const HEALTH_DEFAULT: &str = "http://127.0.0.1:7071";

/// An address, as argument or as flag.
#[derive(Debug, Clone, Args)]
pub struct Address {
    /// Address of the node
    #[arg(value_name = "URL")]
    positional: Option<String>,
    /// Address of the node
    #[arg(
        long,
        value_name = "URL",
        env = "TIDEGATE_URL",
        conflicts_with = "positional"
    )]
    url: Option<String>,
}

/// An HTTP client bound to one node.
#[derive(Clone)]
pub struct Node {
    http: reqwest::Client,
    base: String,
}

impl Address {
    /// A client of that node, or of the default one.
    pub fn node(&self, default: &str) -> Result<Node, Failure> {
        let given = self.positional.as_deref().or(self.url.as_deref());
        Node::new(given.unwrap_or(default))
    }
}

impl Node {
    /// A client of the node at `http://host:port` or `host:port`.
    pub fn new(url: &str) -> Result<Self, Failure> {
        let url = url.trim_end_matches('/');
        let base = match url.split_once("://") {
            None => format!("http://{url}"),
            Some(("http", _)) => url.to_owned(),
            Some((scheme, _)) => {
                return Err(Failure::usage(format!(
                    "{url}: {scheme} is not spoken; use http://host:port"
                )));
            }
        };
        let http = reqwest::Client::builder()
            .tcp_nodelay(true)
            .connect_timeout(Duration::from_secs(5))
            .build()
            .map_err(Failure::failed)?;
        Ok(Self { http, base })
    }

    /// The address.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Status and text of a path.
    pub async fn get(&self, path: &str) -> Result<(u16, String), Failure> {
        let request = self.http.get(format!("{}{path}", self.base));
        let answer = request.timeout(Duration::from_secs(10)).send().await;
        self.text(answer).await
    }

    /// JSON of a path.
    pub async fn get_json(&self, path: &str) -> Result<Value, Failure> {
        let (status, text) = self.get(path).await?;
        serde_json::from_str(&text).map_err(|_| {
            let line = text.lines().next().unwrap_or_default();
            Failure::usage(format!("{}{path} answered {status}: {line}", self.base))
        })
    }

    /// Posts JSON; status and text of the answer.
    pub async fn post(&self, path: &str, body: String) -> Result<(u16, String), Failure> {
        let request = self.http.post(format!("{}{path}", self.base));
        let request = request
            .header("content-type", "application/json")
            .body(body);
        self.text(request.send().await).await
    }

    async fn text(
        &self,
        answer: reqwest::Result<reqwest::Response>,
    ) -> Result<(u16, String), Failure> {
        let failed = |error: reqwest::Error| {
            let hint = match error.is_connect() {
                true => "is a node running there? `tidegate serve` starts one",
                false => "the answer broke off",
            };
            Failure::usage(format!("{}: {} ({hint})", self.base, root_cause(&error)))
        };
        let answer = answer.map_err(failed)?;
        let status = answer.status().as_u16();
        Ok((status, answer.text().await.map_err(failed)?))
    }
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
