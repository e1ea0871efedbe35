//! C SQLite behind the same HTTP shape: the lane that Tidegate's write path is measured
//! against.
//!
//! `sqlite_lane ADDRESS FILE` serves `/v3/pipeline` with a connection to the file for each
//! client, in WAL mode, `synchronous = FULL`, with a busy timeout, as an application with a
//! pool of connections has it. Each client is served by a thread of its own that runs its SQL
//! in place, which favours this lane: no hand-over to a writer, no group commit either.

use std::net::{TcpListener, TcpStream};

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rusqlite::Connection;
use rusqlite::types::{Value, ValueRef};
use serde_json::json;

/// How long a statement waits for the lock before it fails with `SQLITE_BUSY`.
const BUSY_TIMEOUT_MS: u32 = 30_000;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().context("the address is missing")?;
    let file = arguments.next().context("the file is missing")?;
    open(&file)?;
    let listener = TcpListener::bind(&address)?;
    for stream in listener.incoming() {
        let (stream, file) = (stream?, file.clone());
        std::thread::spawn(move || {
            if let Err(error) = serve(stream, &file) {
                eprintln!("{error:#}");
            }
        });
    }
    Ok(())
}

fn open(file: &str) -> Result<Connection> {
    let connection = Connection::open(file)?;
    connection.execute_batch(&format!(
        "PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}; PRAGMA journal_mode = wal; \
         PRAGMA synchronous = full; PRAGMA cache_size = -2000;"
    ))?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn serve(stream: TcpStream, file: &str) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let connection = open(file)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let stream = TokioIo::new(tokio::net::TcpStream::from_std(stream)?);
        let service = service_fn(|request| answer(&connection, request));
        hyper::server::conn::http1::Builder::new()
            .serve_connection(stream, service)
            .await?;
        Ok(())
    })
}

async fn answer(
    connection: &Connection,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>> {
    if request.method() == Method::GET {
        return Ok(Response::new(Full::new(Bytes::new())));
    }
    let body = request.into_body().collect().await?.to_bytes();
    let reply = pipeline(connection, &body)?;
    Ok(Response::builder()
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(reply)))?)
}

fn pipeline(connection: &Connection, body: &[u8]) -> Result<Vec<u8>> {
    let body: serde_json::Value = serde_json::from_slice(body)?;
    let requests = body["requests"].as_array().context("no requests")?;
    let results: Vec<_> = requests
        .iter()
        .map(|request| match request["type"].as_str() {
            Some("execute") => match execute(connection, &request["stmt"]) {
                Ok(result) => json!({"type": "ok",
                    "response": {"type": "execute", "result": result}}),
                Err(error) => json!({"type": "error",
                    "error": {"message": error.to_string(), "code": "SQLITE_ERROR"}}),
            },
            other => json!({"type": "ok", "response": {"type": other}}),
        })
        .collect();
    Ok(serde_json::to_vec(
        &json!({"baton": null, "base_url": null, "results": results}),
    )?)
}

fn execute(connection: &Connection, stmt: &serde_json::Value) -> Result<serde_json::Value> {
    let mut statement = connection.prepare_cached(stmt["sql"].as_str().context("no SQL")?)?;
    let args = stmt["args"].as_array().map_or(&[][..], Vec::as_slice);
    let args: Vec<_> = args.iter().map(decode).collect::<Result<_>>()?;
    let columns: Vec<_> = statement
        .column_names()
        .iter()
        .map(|name| json!({"name": name}))
        .collect();
    let width = columns.len();
    let mut rows = Vec::new();
    let mut cursor = statement.query(rusqlite::params_from_iter(args))?;
    while let Some(row) = cursor.next()? {
        let cells: Vec<_> = (0..width)
            .map(|i| Ok(encode(row.get_ref(i)?)))
            .collect::<Result<_>>()?;
        rows.push(cells);
    }
    Ok(
        json!({"cols": columns, "rows": rows, "affected_row_count": connection.changes(),
        "last_insert_rowid": connection.last_insert_rowid().to_string()}),
    )
}

fn decode(value: &serde_json::Value) -> Result<Value> {
    let inner = &value["value"];
    Ok(match value["type"].as_str() {
        Some("integer") => Value::Integer(inner.as_str().context("no number")?.parse()?),
        Some("float") => Value::Real(inner.as_f64().context("no number")?),
        Some("text") => Value::Text(inner.as_str().context("no text")?.to_owned()),
        _ => Value::Null,
    })
}

fn encode(value: ValueRef<'_>) -> serde_json::Value {
    match value {
        ValueRef::Null | ValueRef::Blob(_) => json!({"type": "null"}),
        ValueRef::Integer(value) => json!({"type": "integer", "value": value.to_string()}),
        ValueRef::Real(value) => json!({"type": "float", "value": value}),
        ValueRef::Text(text) => json!({"type": "text", "value": String::from_utf8_lossy(text)}),
    }
}
