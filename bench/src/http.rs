//! A keep-alive connection that costs the load generator little: one socket, one request at a
//! time, no pool, no redirects, no decoding.

use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Longest wait for one answer. A hang shows as an error instead of a small number.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// One connection.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

impl Connection {
    /// Connects to a port of this machine.
    pub async fn open(port: u16) -> Result<Self> {
        let host = format!("127.0.0.1:{port}");
        let stream = TcpStream::connect(&host)
            .await
            .with_context(|| format!("connecting to {host}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Ends when the sender is dropped; what it reports, the request reports too.
        tokio::spawn(async move { connection.await.ok() });
        Ok(Self { sender, host })
    }

    /// Posts a JSON body: status and body of the answer.
    pub async fn post(&mut self, path: &str, body: Bytes) -> Result<(u16, Bytes)> {
        let request = Request::post(path)
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        self.send(request).await
    }

    /// Gets a path.
    pub async fn get(&mut self, path: &str) -> Result<(u16, Bytes)> {
        let request = Request::get(path)
            .header(HOST, &self.host)
            .body(Full::new(Bytes::new()))?;
        self.send(request).await
    }

    /// Runs one statement without arguments and gives the first column of its first row.
    pub async fn scalar(&mut self, sql: &str) -> Result<Option<i64>> {
        let body = crate::shape::pipeline(&[(sql, String::new())]);
        let (status, reply) = self.post("/v3/pipeline", body).await?;
        let text = String::from_utf8_lossy(&reply);
        let reply: serde_json::Value =
            serde_json::from_str(&text).with_context(|| format!("{status}: {text}"))?;
        let result = &reply["results"][0];
        anyhow::ensure!(result["type"] == "ok", "{sql}: {status}: {text}");
        let cell = &result["response"]["result"]["rows"][0][0]["value"];
        Ok(cell.as_str().and_then(|value| value.parse().ok()))
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<(u16, Bytes)> {
        let answer = async {
            self.sender.ready().await?;
            let response = self.sender.send_request(request).await?;
            let status = response.status().as_u16();
            Ok((status, response.into_body().collect().await?.to_bytes()))
        };
        tokio::time::timeout(ANSWER_LIMIT, answer)
            .await
            .context("no answer in time")?
    }
}
