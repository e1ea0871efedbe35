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
use rusqlite::types::{ToSqlOutput, ValueRef};
use tidegate::front::hrana::Dialect;
use tidegate::front::hrana::error::WireError;
use tidegate::front::hrana::request::{Pipeline, Request as Asked, Sql, Statement};
use tidegate::front::hrana::response::{write_failed, write_ok, write_result};
use tidegate_engine::Value;
use tidegate_engine::adapter::Column;
use tidegate_engine::result::ResultSet;

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

/// Answers a pipeline with the daemon's own codec.
fn pipeline(connection: &Connection, body: &[u8]) -> Result<Vec<u8>> {
    let pipeline = Pipeline::parse(body)?;
    let mut out = br#"{"results":["#.to_vec();
    for (index, asked) in pipeline.requests.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        match asked {
            Asked::Execute(statement) => match execute(connection, statement) {
                Ok(result) => write_ok(&mut out, "execute", |out| {
                    out.extend_from_slice(br#","result":"#);
                    write_result(out, &result, Dialect::Turso);
                }),
                Err(error) => {
                    let error = WireError::new("SQLITE_ERROR", format!("{error:#}"));
                    write_failed(&mut out, &error);
                }
            },
            _ => write_ok(&mut out, "close", |_| {}),
        }
    }
    out.extend_from_slice(br#"],"baton":null,"base_url":null}"#);
    Ok(out)
}

fn execute(connection: &Connection, asked: &Statement) -> Result<ResultSet> {
    let Sql::Text(sql) = &asked.sql else {
        anyhow::bail!("stored statements are not served");
    };
    let mut statement = connection.prepare_cached(sql)?;
    let columns = statement.column_names().into_iter().map(column).collect();
    let width = statement.column_count();
    let mut rows = Vec::new();
    let mut cursor = statement.query(rusqlite::params_from_iter(asked.args.iter().map(bound)))?;
    while let Some(row) = cursor.next()? {
        let cells = (0..width).map(|i| Ok(value(row.get_ref(i)?)));
        rows.push(cells.collect::<Result<_>>()?);
    }
    Ok(ResultSet {
        columns,
        rows,
        changes: connection.changes(),
        last_insert_rowid: Some(connection.last_insert_rowid()),
        ..ResultSet::default()
    })
}

fn column(name: &str) -> Column {
    Column {
        name: name.to_owned(),
        decltype: None,
    }
}

fn bound(value: &Value) -> ToSqlOutput<'_> {
    ToSqlOutput::Borrowed(match value {
        Value::Null => ValueRef::Null,
        Value::Integer(value) => ValueRef::Integer(*value),
        Value::Real(value) => ValueRef::Real(*value),
        Value::Text(text) => ValueRef::Text(text.as_bytes()),
        Value::Blob(bytes) => ValueRef::Blob(bytes),
    })
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Integer(value),
        ValueRef::Real(value) => Value::Real(value),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
    }
}
