//! Hrana: SQL over HTTP and WebSocket, as libSQL and Turso clients speak it.
//!
//! ```text
//! bytes → request (parsed, checked whole) → stream (one session, stored SQL) → response bytes
//! ```
//!
//! Parsing and writing are pure and know nothing of sockets. A request is checked as a whole
//! before any part of it runs: a malformed condition in the last step of a batch must not be
//! found after the first steps were committed. Results are written straight from the engine's
//! values into the reply, which leaves in one write.
//!
//! Where the protocol's texts and its published clients differ, the clients win:
//!
//! - A double that is not finite is `null` under `/v3` (the text says so, and Python's
//!   `turso-serverless` relies on it). Under `/v2`, `/v1` and WebSocket it is `1e999` or `-1e999`, a
//!   JSON number that JavaScript and Python read as infinity; `null` breaks `@libsql/client`.
//! - The condition `error` is the negation of `ok`, true for a skipped step too, as every server
//!   does; the text of Hrana 3 says otherwise.
//! - `last_insert_rowid` is a string in results and a number in cursor entries.
//! - U+0085, U+2028 and U+2029 are escaped: Python clients split a cursor's body with
//!   `splitlines`, which cuts at them.
//! - Base64 is written without padding and read with or without it.
//! - An error body holds its text twice, as `error` (Turso's clients) and as `message` (libSQL's).

pub mod baton;
pub mod condition;
pub mod cursor;
pub mod error;
pub mod pipeline;
pub mod request;
pub mod response;
pub mod stream;
pub mod streams;
pub mod v1;
pub mod value;
pub mod websocket;

/// How doubles that are not finite are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `/v3`: as `null`.
    Turso,
    /// `/v1`, `/v2`, WebSocket: as a number too large for a double.
    Libsql,
}
