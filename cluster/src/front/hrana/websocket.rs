//! WebSocket: `hrana1`, `hrana2` and `hrana3` in JSON.
//!
//! One connection carries many streams. Each stream is a task with a queue, so its requests
//! run in order while streams run beside each other; stored SQL belongs to the connection
//! and is put in before a request is queued. At most [`OUTSTANDING_MAX`] requests are under
//! way; beyond that the connection is not read, and TCP holds the client back.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Request as HttpRequest, State};
use axum::http::{Response, header};
use axum::response::IntoResponse;
use serde::Deserialize;
use std::borrow::Cow;
use tokio::sync::mpsc;

use super::Dialect;
use super::cursor::CursorRun;
use super::error::WireError;
use super::request::{self, Malformed, Request, Sql, WireRequest};
use super::response::{self, write_flag, write_response};
use super::stream::{Reply, StoredSql, Stream};
use super::value::write_integer;
use crate::front::Door;

/// Requests of one connection that are queued or run.
const OUTSTANDING_MAX: usize = 256;
/// Entries of one fetch, whatever the client asks for.
const FETCH_ENTRIES_MAX: u32 = 10_000;
/// Bytes of one fetch, after which it ends early.
const FETCH_BYTES_MAX: usize = 1 << 20;
/// Close code of a protocol error.
const PROTOCOL_ERROR: u16 = 1002;
/// Close code of a server that goes away.
const GOING_AWAY: u16 = 1001;

/// `GET /`: a WebSocket if the client asks for one, a word of greeting otherwise.
pub async fn or_greeting(State(door): State<Arc<Door>>, request: HttpRequest) -> Response<Body> {
    if !request.headers().contains_key(header::UPGRADE) {
        let text = "Tidegate speaks Hrana here: POST /v3/pipeline, /v2/pipeline, /v3/cursor, or a \
                    WebSocket.\n";
        return text.into_response();
    }
    let (mut parts, _) = request.into_parts();
    match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => {
            let bytes_max = usize::try_from(door.config.request_bytes_max).unwrap_or(usize::MAX);
            upgrade
                .protocols(["hrana3", "hrana2", "hrana1"])
                .max_message_size(bytes_max)
                .max_frame_size(bytes_max)
                .on_upgrade(move |socket| Connection::new(door).run(socket))
        }
        Err(rejection) => rejection.into_response(),
    }
}

#[derive(Deserialize)]
struct WireMessage<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    request_id: Option<i32>,
    #[serde(borrow)]
    request: Option<WireRequest<'a>>,
}

struct Connection {
    door: Arc<Door>,
    stored: StoredSql,
    streams: HashMap<i32, mpsc::Sender<Work>>,
    /// Stream of each open cursor.
    cursors: HashMap<i32, i32>,
    replies: mpsc::Sender<Vec<u8>>,
    greeted: bool,
}

/// A request for a stream's task.
struct Work {
    request_id: i32,
    kind: Kind,
}

enum Kind {
    Request(Request),
    OpenCursor(i32, request::Batch),
    FetchCursor(i32, u32),
    CloseCursor(i32),
    Close,
}

impl Connection {
    fn new(door: Arc<Door>) -> Self {
        Self {
            door,
            stored: StoredSql::default(),
            streams: HashMap::new(),
            cursors: HashMap::new(),
            // Replaced by `run`, which owns the other end.
            replies: mpsc::channel(1).0,
            greeted: false,
        }
    }

    async fn run(mut self, mut socket: WebSocket) {
        let (replies, mut answered) = mpsc::channel(OUTSTANDING_MAX);
        self.replies = replies;
        let stopping = self.door.stopping.clone();
        let mut outstanding = 0;
        let close = loop {
            tokio::select! {
                message = socket.recv(), if outstanding < OUTSTANDING_MAX => {
                    let Some(Ok(message)) = message else { return };
                    let handled = match &message {
                        Message::Text(text) => self.take(text.as_bytes()),
                        Message::Binary(_) => Err(Malformed("binary messages are not used".into())),
                        Message::Close(_) => return,
                        Message::Ping(_) | Message::Pong(_) => continue,
                    };
                    match handled {
                        Ok(Some(now)) => if send(&mut socket, now).await.is_err() { return },
                        Ok(None) => outstanding += 1,
                        Err(malformed) => break (PROTOCOL_ERROR, malformed.to_string()),
                    }
                }
                Some(reply) = answered.recv() => {
                    outstanding -= 1;
                    if send(&mut socket, reply).await.is_err() { return }
                }
                () = stopping.cancelled() => break (GOING_AWAY, "the node is shutting down".into()),
            }
        };
        let (code, reason) = close;
        let frame = CloseFrame {
            code,
            reason: reason.into(),
        };
        socket.send(Message::Close(Some(frame))).await.ok();
    }

    /// Handles a message: an immediate reply, or `None` when a stream will answer.
    fn take(&mut self, text: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
        let message: WireMessage<'_> = request::parse(text)?;
        match (message.r#type.as_ref(), message.request_id, message.request) {
            ("hello", _, _) => {
                self.greeted = true;
                Ok(Some(br#"{"type":"hello_ok"}"#.to_vec()))
            }
            ("request", Some(id), Some(request)) if self.greeted => {
                let kind = request.r#type.clone().into_owned();
                match self.dispatch(id, &kind, request) {
                    Ok(true) => Ok(None),
                    Ok(false) => Ok(Some(ok(id, &kind, |_| ()))),
                    Err(Failure::Answer(error)) => Ok(Some(failed(id, &error))),
                    Err(Failure::Protocol(malformed)) => Err(malformed),
                }
            }
            ("request", ..) if !self.greeted => Err(Malformed("`hello` must come first".into())),
            (other, ..) => Err(Malformed(format!("`{other}` is not a complete message"))),
        }
    }

    /// True when the request was queued, false when it is done already.
    fn dispatch(&mut self, id: i32, kind: &str, wire: WireRequest<'_>) -> Result<bool, Failure> {
        let stream = wire.stream_id;
        match kind {
            "open_stream" => self
                .open_stream(needed(stream, "stream_id")?)
                .map(|()| false),
            "close_stream" => {
                let stream = needed(stream, "stream_id")?;
                self.cursors.retain(|_, of| *of != stream);
                match self.streams.remove(&stream) {
                    Some(tasks) => queue(&tasks, id, Kind::Close),
                    None => Ok(false),
                }
            }
            "open_cursor" => {
                let stream = needed(stream, "stream_id")?;
                let cursor = needed(wire.cursor_id, "cursor_id")?;
                let mut batch = wire.into_batch()?;
                for step in &mut batch.steps {
                    self.resolve(&mut step.statement.sql)?;
                }
                let queued = queue(self.stream(stream)?, id, Kind::OpenCursor(cursor, batch))?;
                self.cursors.insert(cursor, stream);
                Ok(queued)
            }
            "fetch_cursor" => {
                let cursor = needed(wire.cursor_id, "cursor_id")?;
                let count = wire.max_count.unwrap_or(FETCH_ENTRIES_MAX);
                let stream = *self.cursors.get(&cursor).ok_or_else(|| no_cursor(cursor))?;
                queue(self.stream(stream)?, id, Kind::FetchCursor(cursor, count))
            }
            "close_cursor" => {
                let cursor = needed(wire.cursor_id, "cursor_id")?;
                match self.cursors.remove(&cursor) {
                    Some(stream) => queue(self.stream(stream)?, id, Kind::CloseCursor(cursor)),
                    None => Ok(false),
                }
            }
            _ => self.dispatch_request(id, wire.decode()?, stream),
        }
    }

    fn dispatch_request(
        &mut self,
        id: i32,
        mut request: Request,
        stream: Option<i32>,
    ) -> Result<bool, Failure> {
        match &mut request {
            Request::StoreSql(sql_id, sql) => {
                self.stored.store(*sql_id, std::mem::take(sql))?;
                return Ok(false);
            }
            Request::CloseSql(sql_id) => {
                self.stored.close(*sql_id);
                return Ok(false);
            }
            Request::Execute(statement) => self.resolve(&mut statement.sql)?,
            Request::Batch(batch) => {
                for step in &mut batch.steps {
                    self.resolve(&mut step.statement.sql)?;
                }
            }
            Request::Sequence(sql) | Request::Describe(sql) => self.resolve(sql)?,
            Request::GetAutocommit => {}
            Request::Close => {
                return Err(Malformed("`close` is not a request of WebSocket".into()).into());
            }
        }
        let stream = needed(stream, "stream_id")?;
        queue(self.stream(stream)?, id, Kind::Request(request))
    }

    fn open_stream(&mut self, stream: i32) -> Result<(), Failure> {
        if self.streams.contains_key(&stream) {
            return Err(Malformed(format!("stream {stream} is open already")).into());
        }
        let max = self.door.config.websocket_streams_max;
        if self.streams.len() >= max {
            let message = format!("a connection has at most {max} streams");
            return Err(WireError::new("TIDEGATE_OVERLOADED", message).into());
        }
        let (queue, work) = mpsc::channel(OUTSTANDING_MAX);
        let task = StreamTask {
            stream: self.door.open_stream()?,
            cursors: HashMap::new(),
            replies: self.replies.clone(),
            reply_bytes_max: self.door.reply_bytes_max,
        };
        tokio::spawn(task.run(work));
        self.streams.insert(stream, queue);
        Ok(())
    }

    fn stream(&self, stream: i32) -> Result<&mpsc::Sender<Work>, Failure> {
        self.streams.get(&stream).ok_or_else(|| {
            let message = format!("stream {stream} is not open on this connection");
            WireError::new("STREAM_NOT_FOUND", message).into()
        })
    }

    fn resolve(&self, sql: &mut Sql) -> Result<(), Failure> {
        let text = self.stored.resolve(sql)?.to_owned();
        *sql = Sql::Text(text);
        Ok(())
    }
}

/// One stream of a connection. Ends when the connection does, which rolls back.
struct StreamTask {
    stream: Stream,
    cursors: HashMap<i32, CursorRun>,
    replies: mpsc::Sender<Vec<u8>>,
    reply_bytes_max: usize,
}

impl StreamTask {
    async fn run(mut self, mut queue: mpsc::Receiver<Work>) {
        let gone = self.replies.clone();
        while let Some(Work { request_id, kind }) = queue.recv().await {
            if matches!(kind, Kind::Close) {
                self.stream.close().await;
                self.replies
                    .send(ok(request_id, "close_stream", |_| ()))
                    .await
                    .ok();
                return;
            }
            let answer = tokio::select! {
                answer = self.answer(request_id, kind) => answer,
                () = gone.closed() => return,
            };
            if self.replies.send(answer).await.is_err() {
                return;
            }
        }
    }

    async fn answer(&mut self, id: i32, kind: Kind) -> Vec<u8> {
        match kind {
            Kind::Request(request) => match self.request(id, request).await {
                Ok(answer) => answer,
                Err(error) => failed(id, &error),
            },
            Kind::OpenCursor(cursor, batch) => {
                self.cursors.insert(cursor, CursorRun::new(batch));
                ok(id, "open_cursor", |_| ())
            }
            Kind::FetchCursor(cursor, count) => self.fetch(id, cursor, count).await,
            Kind::CloseCursor(cursor) => {
                self.cursors.remove(&cursor);
                ok(id, "close_cursor", |_| ())
            }
            Kind::Close => unreachable!("handled by the loop"),
        }
    }

    async fn request(&mut self, id: i32, request: Request) -> Result<Vec<u8>, WireError> {
        let mut reply = Reply::new(Dialect::Libsql, self.reply_bytes_max);
        let result = br#","result":"#;
        Ok(match request {
            Request::Execute(statement) => {
                let set = self.stream.execute(statement, &mut reply).await?;
                ok(id, "execute", |out| {
                    out.extend_from_slice(result);
                    response::write_result(out, &set, Dialect::Libsql);
                })
            }
            Request::Batch(batch) => {
                self.stream.batch(batch, &mut reply).await;
                ok(id, "batch", |out| {
                    out.extend_from_slice(result);
                    out.append(&mut reply.out);
                })
            }
            Request::Sequence(sql) => {
                self.stream.sequence(&sql, &mut reply).await?;
                ok(id, "sequence", |_| ())
            }
            Request::Describe(sql) => {
                let described = self.stream.describe(&sql).await?;
                ok(id, "describe", |out| {
                    out.extend_from_slice(result);
                    response::write_described(out, &described);
                })
            }
            Request::GetAutocommit => {
                let autocommit = self.stream.is_autocommit();
                ok(id, "get_autocommit", |out| {
                    write_flag(out, "is_autocommit", autocommit);
                })
            }
            Request::StoreSql(..) | Request::CloseSql(_) | Request::Close => {
                unreachable!("handled by the connection")
            }
        })
    }

    async fn fetch(&mut self, id: i32, cursor: i32, count: u32) -> Vec<u8> {
        let Some(run) = self.cursors.get_mut(&cursor) else {
            return failed(id, &no_cursor(cursor));
        };
        let mut reply = Reply::new(Dialect::Libsql, self.reply_bytes_max);
        let mut done = false;
        for index in 0..count.min(FETCH_ENTRIES_MAX) {
            let start = reply.out.len();
            if index > 0 {
                reply.out.push(b',');
            }
            if !run.write_next(&mut self.stream, &mut reply).await {
                reply.out.truncate(start);
                done = true;
                break;
            }
            if reply.out.len() > FETCH_BYTES_MAX {
                break;
            }
        }
        ok(id, "fetch_cursor", |out| {
            out.extend_from_slice(br#","entries":["#);
            out.append(&mut reply.out);
            out.push(b']');
            write_flag(out, "done", done);
        })
    }
}

/// Why a request was not queued.
enum Failure {
    /// The client is told.
    Answer(WireError),
    /// The connection ends.
    Protocol(Malformed),
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        Self::Answer(error)
    }
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Self::Protocol(malformed)
    }
}

async fn send(socket: &mut WebSocket, json: Vec<u8>) -> Result<(), axum::Error> {
    let text = String::from_utf8(json).expect("the writers write UTF-8");
    socket.send(Message::Text(text.into())).await
}

/// The queue has room for every outstanding request, so it is never full.
fn queue(stream: &mpsc::Sender<Work>, request_id: i32, kind: Kind) -> Result<bool, Failure> {
    stream
        .try_send(Work { request_id, kind })
        .map(|()| true)
        .map_err(|_| WireError::new("STREAM_NOT_FOUND", "the stream has ended").into())
}

fn needed(id: Option<i32>, name: &str) -> Result<i32, Malformed> {
    id.ok_or_else(|| Malformed(format!("a request lacks `{name}`")))
}

fn no_cursor(cursor: i32) -> WireError {
    WireError::new("STREAM_NOT_FOUND", format!("cursor {cursor} is not open"))
}

fn ok(id: i32, kind: &str, rest: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    write_integer(
        &mut out,
        format_args!(r#"{{"type":"response_ok","request_id":{id},"response":"#),
    );
    write_response(&mut out, kind, rest);
    out.push(b'}');
    out
}

fn failed(id: i32, error: &WireError) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    write_integer(
        &mut out,
        format_args!(r#"{{"type":"response_error","request_id":{id},"error":"#),
    );
    error.write(&mut out);
    out.push(b'}');
    out
}
