//! The doors for clients.
//!
//! Each protocol has a folder here; all of them open sessions of the one engine. This file
//! holds what they share: the state behind the client listener, its routes, and the rules
//! for browsers.
//!
//! A browser sends a page's requests to any address, loopback included, so a node without
//! tokens would be open to every page its user visits. Requests that carry an `Origin` are
//! therefore served only for origins in `http.origins`; by default those of loopback pages.

pub mod body;
pub mod hrana;
pub mod listener;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::{self, Next};
use axum::routing::{any, get, post};
use tidegate_engine::Seq;
use tokio_util::sync::CancellationToken;

use crate::config::HttpConfig;
use crate::forward::{Forwarder, Session};
use crate::mounted::EngineSlot;
use crate::status::StatusReceiver;
use body::BodyBudget;
use hrana::error::WireError;
use hrana::stream::{Reply, Stream};
use hrana::streams::Streams;

/// Name of the header with a position.
pub const POSITION_HEADER: &str = "tidegate-position";

/// Name of the header that says that this node has not applied what the answer stands for.
pub const APPLIED_HEADER: &str = "tidegate-applied";

/// What stands behind the client listener.
pub struct Door {
    /// The engine of this node.
    pub engine: EngineSlot,
    /// On a replica, the way to the primary.
    pub forwarder: Option<Arc<Forwarder>>,
    /// Streams between two requests.
    pub streams: Streams,
    /// Who this node is.
    pub status: StatusReceiver,
    /// Limits.
    pub config: HttpConfig,
    /// Memory for request bodies.
    pub bodies: BodyBudget,
    /// About the largest reply.
    pub reply_bytes_max: usize,
    /// Fires when shutdown begins.
    pub stopping: CancellationToken,
}

impl Door {
    /// A new stream.
    pub fn open_stream(&self) -> Result<Stream, WireError> {
        let engine = self.engine.get().ok_or_else(closed)?;
        let session = Session::new(engine.session(), self.forwarder.clone());
        Ok(Stream::new(session))
    }

    /// The epoch that batons are bound to.
    pub fn epoch(&self) -> u64 {
        self.status.borrow().epoch
    }

    /// `<cluster>:<epoch>:<seq>`, for an answer at this position or at the head.
    pub fn position_header(&self, position: Option<Seq>) -> HeaderValue {
        let head = || self.engine.get().map(|engine| engine.head().borrow().seq);
        let seq = position.or_else(head).unwrap_or_default();
        let status = self.status.borrow();
        let text = format!("{}:{}:{seq}", status.cluster_id, status.epoch);
        HeaderValue::from_str(&text).expect("hexadecimal digits and numbers are visible ASCII")
    }

    /// Tells a client where the answer stands.
    fn put_position(&self, response: &mut Response<Body>, reply: &Reply) {
        let headers = response.headers_mut();
        headers.insert(POSITION_HEADER, self.position_header(reply.position));
        if !reply.applied {
            headers.insert(APPLIED_HEADER, HeaderValue::from_static("false"));
        }
    }

    /// Waits until this node holds the position that the request asks for, if it does.
    pub async fn wait_position(&self, headers: &HeaderMap) -> Result<(), WireError> {
        let Some(value) = headers.get(POSITION_HEADER) else {
            return Ok(());
        };
        let asked = self.parse_position(value)?;
        let mut head = self.engine.get().ok_or_else(closed)?.head();
        let reached = head.wait_for(|head| head.seq >= asked);
        match tokio::time::timeout(self.config.wait_position, reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(closed()),
            Err(_) => Err(WireError::new(
                "TIDEGATE_STALE",
                format!(
                    "this node did not reach position {asked} within {:?}; nothing was run",
                    self.config.wait_position
                ),
            )),
        }
    }

    fn parse_position(&self, value: &HeaderValue) -> Result<Seq, WireError> {
        let status = self.status.borrow();
        let malformed = || {
            WireError::new(
                "TIDEGATE_MALFORMED",
                format!("{POSITION_HEADER} must be <cluster>:<epoch>:<seq>, as a reply gave it"),
            )
        };
        let text = value.to_str().map_err(|_| malformed())?;
        let mut parts = text.split(':');
        let (Some(cluster), Some(epoch), Some(seq), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed());
        };
        let epoch: u64 = epoch.parse().map_err(|_| malformed())?;
        let seq: u64 = seq.parse().map_err(|_| malformed())?;
        if cluster != status.cluster_id || epoch > status.epoch {
            return Err(WireError::new(
                "TIDEGATE_STALE",
                format!(
                    "the position {text} is not on the history of this node, which is cluster {} \
                     in epoch {}",
                    status.cluster_id, status.epoch
                ),
            ));
        }
        Ok(Seq::new(seq))
    }
}

/// The engine is closed: at the end of the process, or while a snapshot takes its place.
fn closed() -> WireError {
    WireError::new(
        "TIDEGATE_NOT_READY",
        "this node has no database open at the moment; try again, or use another node",
    )
}

/// The routes of the client listener.
pub fn router(door: Arc<Door>) -> Router {
    Router::new()
        .route("/", get(hrana::websocket::or_greeting))
        .route("/version", get(version))
        .route("/health", get(|| async { "ok\n" }))
        .route("/v1", get(|| async { "" }))
        .route("/v1/execute", post(hrana::v1::execute))
        .route("/v1/batch", post(hrana::v1::batch))
        .route("/v2", get(|| async { "" }))
        .route("/v2/pipeline", post(hrana::pipeline::v2))
        .route("/v3", get(|| async { "" }))
        .route("/v3/pipeline", post(hrana::pipeline::v3))
        .route("/v3/cursor", post(hrana::cursor::v3))
        .fallback(any(not_found))
        .layer(middleware::from_fn_with_state(door.clone(), browser_rules))
        .with_state(door)
}

/// A JSON reply that leaves in one write.
pub fn json_reply(status: u16, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() =
        StatusCode::from_u16(status).expect("statuses come from the table of codes");
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// A failed request.
pub fn error_reply(error: &WireError) -> Response<Body> {
    let mut response = json_reply(error.status(), error.body());
    if error.retryable && error.status() == 503 {
        let soon = HeaderValue::from_static("1");
        response.headers_mut().insert(header::RETRY_AFTER, soon);
    }
    response
}

async fn version() -> String {
    format!("tidegate {}\n", env!("CARGO_PKG_VERSION"))
}

async fn not_found(request: Request) -> Response<Body> {
    let message = format!(
        "no {} {} here; this port speaks Hrana at /v2/pipeline, /v3/pipeline and /v3/cursor",
        request.method(),
        request.uri().path()
    );
    let mut response = json_reply(404, WireError::new("TIDEGATE_MALFORMED", message).body());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

async fn browser_rules(
    State(door): State<Arc<Door>>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let Some(origin) = request.headers().get(header::ORIGIN).cloned() else {
        return next.run(request).await;
    };
    if !is_allowed(&door.config.origins, &origin) {
        let message = format!(
            "pages of {origin:?} may not use this node; allow them with http.origins (--origin)"
        );
        let mut response = error_reply(&WireError::new("TIDEGATE_REFUSED", message));
        *response.status_mut() = StatusCode::FORBIDDEN;
        return response;
    }
    let asked = request
        .headers()
        .get(header::ACCESS_CONTROL_REQUEST_HEADERS)
        .cloned();
    let mut response = if request.method() == Method::OPTIONS {
        preflight(asked)
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("origin"));
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("tidegate-position, tidegate-applied, retry-after"),
    );
    response
}

fn preflight(asked: Option<HeaderValue>) -> Response<Body> {
    /// How long a browser may remember the answer.
    const REMEMBER: Duration = Duration::from_secs(7_200);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("GET, POST, OPTIONS"),
    );
    let asked = asked.unwrap_or_else(|| {
        HeaderValue::from_static("content-type, authorization, tidegate-position")
    });
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked);
    headers.insert(
        header::ACCESS_CONTROL_MAX_AGE,
        HeaderValue::from(REMEMBER.as_secs()),
    );
    response
}

fn is_allowed(origins: &[String], origin: &HeaderValue) -> bool {
    let Ok(origin) = origin.to_str() else {
        return false;
    };
    origins.iter().any(|allowed| match allowed.as_str() {
        "*" => true,
        "loopback" => is_loopback(origin),
        exact => exact == origin,
    })
}

/// `http://localhost:3000`, `https://127.0.0.1`, `http://[::1]:80`.
fn is_loopback(origin: &str) -> bool {
    let Some((_, authority)) = origin.split_once("://") else {
        return false;
    };
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    matches!(host, "localhost" | "127.0.0.1" | "::1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_loopback_are_served_by_default() {
        let allowed = |origin: &'static str, origins: &[&str]| {
            let origins: Vec<String> = origins.iter().map(|o| (*o).to_owned()).collect();
            is_allowed(&origins, &HeaderValue::from_static(origin))
        };
        assert!(allowed("http://localhost:3000", &["loopback"]));
        assert!(allowed("http://[::1]:3000", &["loopback"]));
        assert!(!allowed("http://localhost.evil.example", &["loopback"]));
        assert!(!allowed("https://evil.example", &["loopback"]));
        assert!(!allowed("null", &["loopback"]));
        assert!(allowed("https://app.example", &["https://app.example"]));
        assert!(allowed("https://any.example", &["*"]));
    }
}
