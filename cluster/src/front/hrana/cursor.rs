//! Cursors: a batch whose results are given entry by entry, over HTTP (`POST /v3/cursor`) as
//! lines of JSON, over WebSocket in portions that the client fetches.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, header};
use tidegate_engine::Seq;
use tidegate_engine::result::ResultSet;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::Dialect;
use super::error::WireError;
use super::pipeline::write_stream_fields;
use super::request::{Batch, CursorRequest, Step};
use super::response::{write_columns, write_row};
use super::stream::{Reply, Stream};
use super::streams::Reserved;
use super::value::write_integer;
use crate::front::{Door, POSITION_HEADER, error_reply};

/// A piece of the body is sent when it has grown to this size; a smaller body leaves in one.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces waiting for a slow client.
const PIECES_MAX: usize = 4;

/// A batch on its way, one entry at a time.
pub struct CursorRun {
    steps: std::vec::IntoIter<Step>,
    succeeded: Vec<bool>,
    current: Option<Current>,
}

/// The step whose rows are being given.
struct Current {
    result: ResultSet,
    rows: std::vec::IntoIter<Vec<tidegate_engine::Value>>,
}

impl CursorRun {
    /// At the batch's start.
    pub fn new(batch: Batch) -> Self {
        Self {
            succeeded: Vec::with_capacity(batch.steps.len()),
            steps: batch.steps.into_iter(),
            current: None,
        }
    }

    /// Appends the next entry; false at the end. Runs the next step when one is due.
    pub async fn write_next(&mut self, stream: &mut Stream, reply: &mut Reply) -> bool {
        if let Some(current) = &mut self.current {
            match current.rows.next() {
                Some(row) => write_row_entry(&mut reply.out, &row, reply.dialect),
                None => {
                    write_step_end(&mut reply.out, &current.result, reply.dialect);
                    self.current = None;
                }
            }
            return true;
        }
        while let Some(step) = self.steps.next() {
            let number = self.succeeded.len();
            let autocommit = stream.is_autocommit();
            let runs = step
                .condition
                .is_none_or(|c| c.holds(&self.succeeded, autocommit));
            if !runs {
                self.succeeded.push(false);
                continue;
            }
            // The bound on a whole reply is not meant for streamed ones.
            let full = std::mem::take(&mut reply.out);
            let outcome = stream.execute(step.statement, reply).await;
            reply.out = full;
            self.succeeded.push(outcome.is_ok());
            match outcome {
                Ok(mut result) => {
                    write_step_begin(&mut reply.out, number, &result);
                    let rows = std::mem::take(&mut result.rows).into_iter();
                    self.current = Some(Current { result, rows });
                }
                Err(error) => write_step_error(&mut reply.out, number, &error),
            }
            return true;
        }
        false
    }
}

/// `/v3/cursor`
pub async fn v3(State(door): State<Arc<Door>>, request: Request) -> Response<Body> {
    match start(&door, request).await {
        Ok(response) => response,
        Err(error) => error_reply(&error),
    }
}

async fn start(door: &Arc<Door>, request: Request) -> Result<Response<Body>, WireError> {
    let (parts, body) = request.into_parts();
    let body = door.bodies.read(&parts.headers, body).await?;
    let CursorRequest { baton, batch } = CursorRequest::parse(&body)?;
    drop(body);
    door.wait_position(&parts.headers).await?;
    let epoch = door.epoch();
    let stream = match baton {
        Some(baton) => door.streams.take(&baton, epoch)?,
        None => door.open_stream()?,
    };
    let (reserved, baton) = door.streams.reserve(epoch)?;
    let (pieces, mut body) = mpsc::channel::<Bytes>(PIECES_MAX);
    let mut producer = Producer {
        door: door.clone(),
        reserved: Some(reserved),
        reply: Reply::new(Dialect::Turso, door.reply_bytes_max),
        pieces,
    };
    producer.write_head(&baton);
    tokio::spawn(producer.run(stream, CursorRun::new(batch)));
    let first = body.recv().await.unwrap_or_default();
    // Nearly all bodies are one piece: known length, one write.
    let body = match body.recv().await {
        None => Body::from(first),
        Some(second) => {
            let head = tokio_stream::iter([first, second]);
            let pieces = head.chain(ReceiverStream::new(body));
            Body::from_stream(pieces.map(Ok::<_, std::convert::Infallible>))
        }
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(POSITION_HEADER, door.position_header(None));
    Ok(response)
}

/// Runs a cursor's batch beside the reply. If the client goes away the batch stops, the
/// stream is dropped and an open transaction rolled back.
struct Producer {
    door: Arc<Door>,
    reserved: Option<Reserved>,
    reply: Reply,
    pieces: mpsc::Sender<Bytes>,
}

impl Producer {
    /// The first line; it has no comma before its first field.
    fn write_head(&mut self, baton: &str) {
        let mut fields = Vec::new();
        write_stream_fields(&mut fields, &self.door, Some(baton));
        fields[0] = b'{';
        self.reply.out.extend_from_slice(&fields);
        self.reply.out.extend_from_slice(b"}\n");
    }

    async fn run(mut self, mut stream: Stream, mut cursor: CursorRun) {
        loop {
            let gone = self.pieces.clone();
            let more = tokio::select! {
                more = cursor.write_next(&mut stream, &mut self.reply) => more,
                () = gone.closed() => return,
            };
            if !more {
                break;
            }
            self.reply.out.push(b'\n');
            if self.reply.out.len() >= PIECE_BYTES {
                let piece = std::mem::take(&mut self.reply.out);
                if self.pieces.send(piece.into()).await.is_err() {
                    return;
                }
            }
        }
        write_terminator(&mut self.reply.out, self.reply.position);
        // Before the end is sent: the client may use its baton as soon as it sees that.
        if let Some(reserved) = self.reserved.take() {
            self.door.streams.fill(reserved, stream);
        }
        let last = std::mem::take(&mut self.reply.out);
        self.pieces.send(last.into()).await.ok();
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            self.door.streams.abandon(reserved);
        }
    }
}

fn write_step_begin(out: &mut Vec<u8>, step: usize, result: &ResultSet) {
    write_integer(
        out,
        format_args!(r#"{{"type":"step_begin","step":{step},"cols":"#),
    );
    write_columns(out, &result.columns);
    out.push(b'}');
}

fn write_row_entry(out: &mut Vec<u8>, row: &[tidegate_engine::Value], dialect: Dialect) {
    out.extend_from_slice(br#"{"type":"row","row":"#);
    write_row(out, row, dialect);
    out.push(b'}');
}

/// The row id is a number for Turso's clients and a string for libSQL's.
fn write_step_end(out: &mut Vec<u8>, result: &ResultSet, dialect: Dialect) {
    let changes = result.changes;
    write_integer(
        out,
        format_args!(r#"{{"type":"step_end","affected_row_count":{changes},"last_insert_rowid":"#),
    );
    match (result.last_insert_rowid, dialect) {
        (Some(id), Dialect::Turso) => write_integer(out, id),
        (id, _) => super::response::write_quoted(out, id),
    }
    out.push(b'}');
}

fn write_step_error(out: &mut Vec<u8>, step: usize, error: &WireError) {
    write_integer(
        out,
        format_args!(r#"{{"type":"step_error","step":{step},"error":"#),
    );
    error.write(out);
    out.push(b'}');
}

fn write_terminator(out: &mut Vec<u8>, position: Option<Seq>) {
    out.extend_from_slice(br#"{"type":"replication_index","replication_index":"#);
    match position {
        Some(position) => write_integer(out, position),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b"}\n");
}
