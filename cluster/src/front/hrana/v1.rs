//! `POST /v1/execute` and `POST /v1/batch`: one statement or batch on a stream of its own.
//!
//! An error is the HTTP status here, with the error as body.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;

use super::Dialect;
use super::error::WireError;
use super::request::{Batch, Statement};
use super::response::write_result;
use super::stream::Reply;
use crate::front::{Door, error_reply, json_reply};

/// `/v1/execute`
pub async fn execute(State(door): State<Arc<Door>>, request: Request) -> Response<Body> {
    match run_statement(&door, request).await {
        Ok(reply) => finish(&door, reply),
        Err(error) => error_reply(&error),
    }
}

/// `/v1/batch`
pub async fn batch(State(door): State<Arc<Door>>, request: Request) -> Response<Body> {
    match run_batch(&door, request).await {
        Ok(reply) => finish(&door, reply),
        Err(error) => error_reply(&error),
    }
}

async fn run_statement(door: &Door, request: Request) -> Result<Reply, WireError> {
    let (parts, body) = request.into_parts();
    let body = door.bodies.read(&parts.headers, body).await?;
    let statement = Statement::parse_v1(&body)?;
    door.wait_position(&parts.headers).await?;
    let mut reply = start(door);
    let mut stream = door.open_stream()?;
    let result = stream.execute(statement, &mut reply).await?;
    write_result(&mut reply.out, &result, Dialect::Libsql);
    stream.close().await;
    Ok(reply)
}

async fn run_batch(door: &Door, request: Request) -> Result<Reply, WireError> {
    let (parts, body) = request.into_parts();
    let body = door.bodies.read(&parts.headers, body).await?;
    let batch = Batch::parse_v1(&body)?;
    door.wait_position(&parts.headers).await?;
    let mut reply = start(door);
    let mut stream = door.open_stream()?;
    stream.batch(batch, &mut reply).await;
    stream.close().await;
    Ok(reply)
}

fn start(door: &Door) -> Reply {
    let mut reply = Reply::new(Dialect::Libsql, door.reply_bytes_max);
    reply.out.extend_from_slice(br#"{"result":"#);
    reply
}

fn finish(door: &Door, mut reply: Reply) -> Response<Body> {
    reply.out.push(b'}');
    let out = std::mem::take(&mut reply.out);
    let mut response = json_reply(200, out);
    door.put_position(&mut response, &reply);
    response
}
