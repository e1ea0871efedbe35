//! `POST /v2/pipeline` and `POST /v3/pipeline`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::http::Response;

use super::Dialect;
use super::error::WireError;
use super::request::{Pipeline, Request};
use super::response::write_quoted;
use super::stream::Reply;
use super::value::{write_integer, write_string};
use crate::front::{Door, error_reply, json_reply};

/// `/v2/pipeline`: `@libsql/client` and curl.
pub async fn v2(State(door): State<Arc<Door>>, request: HttpRequest) -> Response<Body> {
    answer(&door, request, Dialect::Libsql).await
}

/// `/v3/pipeline`: Turso's serverless clients and the others.
pub async fn v3(State(door): State<Arc<Door>>, request: HttpRequest) -> Response<Body> {
    answer(&door, request, Dialect::Turso).await
}

async fn answer(door: &Door, request: HttpRequest, dialect: Dialect) -> Response<Body> {
    match run(door, request, dialect).await {
        Ok(response) => response,
        Err(error) => error_reply(&error),
    }
}

/// Runs all requests on one stream. If the client goes away this future is dropped in the
/// middle, the stream with it, and an open transaction is rolled back.
async fn run(
    door: &Door,
    request: HttpRequest,
    dialect: Dialect,
) -> Result<Response<Body>, WireError> {
    let (parts, body) = request.into_parts();
    let body = door.bodies.read(&parts.headers, body).await?;
    let pipeline = Pipeline::parse(&body)?;
    door.wait_position(&parts.headers).await?;
    let epoch = door.epoch();
    let mut stream = match &pipeline.baton {
        Some(baton) => door.streams.take(baton, epoch)?,
        None => door.open_stream()?,
    };
    let mut reply = Reply::new(dialect, door.reply_bytes_max);
    reply.out.extend_from_slice(br#"{"results":["#);
    let mut closed = false;
    for (index, request) in pipeline.requests.into_iter().enumerate() {
        if index > 0 {
            reply.out.push(b',');
        }
        closed = request == Request::Close;
        stream.answer(request, &mut reply).await;
    }
    let baton = if closed {
        stream.close().await;
        None
    } else {
        keep(door, stream, epoch)?
    };
    Ok(finish(door, reply, baton))
}

/// Keeps the stream for its next request. When there is no room, one without state may be
/// closed silently; one with a transaction must not, or its client would go on outside of it.
fn keep(
    door: &Door,
    stream: super::stream::Stream,
    epoch: u64,
) -> Result<Option<String>, WireError> {
    let stateless = stream.is_stateless();
    match door.streams.put(stream, epoch) {
        Ok(baton) => Ok(Some(baton)),
        Err(_) if stateless => Ok(None),
        Err(error) => Err(error),
    }
}

fn finish(door: &Door, mut reply: Reply, baton: Option<String>) -> Response<Body> {
    let mut out = std::mem::take(&mut reply.out);
    out.push(b']');
    write_stream_fields(&mut out, door, baton.as_deref());
    out.extend_from_slice(br#","replication_index":"#);
    write_quoted(&mut out, reply.position);
    out.push(b'}');
    let mut response = json_reply(200, out);
    door.put_position(&mut response, &reply);
    response
}

/// Writes `,"baton":…,"base_url":…` and, with a baton, `stream_ttl_ms`.
pub fn write_stream_fields(out: &mut Vec<u8>, door: &Door, baton: Option<&str>) {
    let optional = |out: &mut Vec<u8>, text: Option<&str>| match text {
        Some(text) => write_string(out, text),
        None => out.extend_from_slice(b"null"),
    };
    out.extend_from_slice(br#","baton":"#);
    optional(out, baton);
    out.extend_from_slice(br#","base_url":"#);
    optional(
        out,
        door.config.base_url.as_deref().filter(|_| baton.is_some()),
    );
    if baton.is_some() {
        out.extend_from_slice(br#","stream_ttl_ms":"#);
        write_integer(out, door.streams.idle().as_millis());
    }
}
