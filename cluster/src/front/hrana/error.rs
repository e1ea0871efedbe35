//! Errors as clients see them: a code, a sentence, whether to try again, and an HTTP status
//! where the whole request fails.

use std::borrow::Cow;

use tidegate_engine::Error;

use super::request::Malformed;
use super::value::write_string;

/// An error on its way to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireError {
    /// A stable word.
    pub code: Cow<'static, str>,
    /// A sentence for people.
    pub message: String,
    /// True when the same request may succeed later.
    pub retryable: bool,
}

/// What is known about a code.
#[derive(Debug, Clone, Copy)]
pub struct Code {
    /// The word; SQLite's codes are found by prefix.
    pub code: &'static str,
    /// Status when a whole HTTP request fails with it.
    pub status: u16,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// For the documentation.
    pub meaning: &'static str,
}

/// All codes. The first entry whose word is a prefix decides.
pub const CODES: &[Code] = &[
    code(
        "TIDEGATE_MALFORMED",
        400,
        false,
        "The body is not a request of this protocol. Nothing was run.",
    ),
    code(
        "TIDEGATE_REFUSED",
        400,
        false,
        "Tidegate does not run this statement; the message says why and what to do instead.",
    ),
    code(
        "TIDEGATE_OVERLOADED",
        503,
        true,
        "A queue or a limit is full. Nothing was run.",
    ),
    code(
        "TIDEGATE_READ_ONLY",
        421,
        false,
        "This node does not take writes, or the transaction is read-only.",
    ),
    code(
        "TIDEGATE_INDETERMINATE",
        504,
        false,
        "The commit may or may not have happened, or is not as safe yet as asked for.",
    ),
    code(
        "TIDEGATE_FENCED",
        503,
        false,
        "Another node leads, or claims to. Nothing was committed; the message says what to do.",
    ),
    code(
        "TIDEGATE_STALE",
        503,
        true,
        "The position asked for in `tidegate-position` was not reached in time.",
    ),
    code(
        "TIDEGATE_NOT_ENOUGH_REPLICAS",
        503,
        true,
        "Fewer replicas are attached than `ack` asks for. Nothing was run.",
    ),
    code(
        "TIDEGATE_TXN_TIMEOUT",
        408,
        true,
        "The transaction was idle or open for too long and was rolled back.",
    ),
    code(
        "TIDEGATE_TOO_LARGE",
        413,
        false,
        "The request or the result passes a limit.",
    ),
    code(
        "TIDEGATE_NOT_READY",
        503,
        true,
        "The node is starting or stopping, or has no data yet.",
    ),
    code(
        "STREAM_EXPIRED",
        410,
        true,
        "The stream was idle for too long; its transaction was rolled back.",
    ),
    code(
        "STREAM_LOST",
        410,
        true,
        "The process that had the stream is gone; its transaction was rolled back.",
    ),
    code(
        "STREAM_NOT_FOUND",
        404,
        false,
        "No such stream: a used or foreign baton. Nothing is known of its transaction.",
    ),
    code(
        "SQLITE_BUSY_SNAPSHOT",
        409,
        true,
        "The transaction's snapshot is stale: roll back and run it again.",
    ),
    code("SQLITE_BUSY", 503, true, "The database is busy."),
    code(
        "SQLITE_INTERRUPT",
        408,
        false,
        "The statement passed its time limit.",
    ),
    code(
        "SQLITE_FULL",
        507,
        true,
        "No space is left on the device. Reads go on.",
    ),
    code("SQLITE_IOERR", 500, false, "Reading or writing failed."),
    code(
        "SQLITE_CORRUPT",
        500,
        false,
        "The file is not a healthy database.",
    ),
    code(
        "SQLITE_INTERNAL",
        500,
        false,
        "A fault inside the engine; only this statement failed.",
    ),
    code(
        "SQLITE_",
        400,
        false,
        "The statement is wrong, or the schema forbids it: SQLite's extended name, such as `SQLITE_CONSTRAINT_UNIQUE`.",
    ),
];

const fn code(code: &'static str, status: u16, retryable: bool, meaning: &'static str) -> Code {
    Code {
        code,
        status,
        retryable,
        meaning,
    }
}

impl WireError {
    /// With a code of the table.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            retryable: known(code).retryable,
        }
    }

    /// HTTP status of a request that fails with it.
    pub fn status(&self) -> u16 {
        known(&self.code).status
    }

    /// Writes the object that stands inside results: `{"message":…,"code":…}`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"message":"#);
        self.write_rest(out);
    }

    /// The body of a failed request, which holds the text under both of its names.
    pub fn body(&self) -> Vec<u8> {
        let mut out = br#"{"error":"#.to_vec();
        write_string(&mut out, &self.message);
        out.extend_from_slice(br#","message":"#);
        self.write_rest(&mut out);
        out
    }

    fn write_rest(&self, out: &mut Vec<u8>) {
        write_string(out, &self.message);
        out.extend_from_slice(br#","code":"#);
        write_string(out, &self.code);
        if self.code.starts_with("SQLITE_CONSTRAINT_") {
            out.extend_from_slice(br#","extended_code":"#);
            write_string(out, &self.code);
        }
        out.extend_from_slice(br#","retryable":"#);
        out.extend_from_slice(if self.retryable { b"true}" } else { b"false}" });
    }
}

impl From<Error> for WireError {
    fn from(error: Error) -> Self {
        Self {
            retryable: error.is_retryable(),
            ..Self::new(error.code(), error.to_string())
        }
    }
}

impl From<Malformed> for WireError {
    fn from(error: Malformed) -> Self {
        Self::new("TIDEGATE_MALFORMED", error.to_string())
    }
}

/// The table of codes as Markdown, for `docs/protocol.md`.
pub fn codes_markdown() -> String {
    let mut out = String::from("| code | HTTP status | retryable | meaning |\n|---|---|---|---|\n");
    for entry in CODES {
        let retryable = if entry.retryable { "yes" } else { "no" };
        let dots = if entry.code.ends_with('_') { "…" } else { "" };
        out += &format!(
            "| `{}{dots}` | {} | {retryable} | {} |\n",
            entry.code, entry.status, entry.meaning
        );
    }
    out
}

fn known(code: &str) -> &'static Code {
    const UNKNOWN: Code = self::code("", 500, false, "");
    CODES
        .iter()
        .find(|entry| code.starts_with(entry.code))
        .unwrap_or(&UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_request_says_its_text_under_both_names() {
        let error = WireError::new("STREAM_EXPIRED", "gone \"for good\"");
        let body = String::from_utf8(error.body()).expect("UTF-8");
        let expected = r#"{"error":"gone \"for good\"","message":"gone \"for good\"","code":"STREAM_EXPIRED","retryable":true}"#;
        assert_eq!((body.as_str(), error.status()), (expected, 410));
    }

    #[test]
    fn codes_of_the_engine_have_a_status_and_agree_on_retrying() {
        let errors = [
            Error::Busy,
            Error::StaleSnapshot,
            Error::Interrupted,
            Error::Overloaded("x".into()),
            Error::TooLarge("x".into()),
            Error::ReadOnly("x".into()),
            Error::Indeterminate("x".into()),
            Error::NoSpace("x".into()),
            Error::Io("x".into()),
            Error::Closed,
            Error::TransactionTimeout("x".into()),
            Error::refused("x", "x"),
        ];
        for error in errors {
            let entry = known(error.code());
            assert!(!entry.code.is_empty(), "{error:?} has no entry");
            assert_eq!(entry.retryable, error.is_retryable(), "{error:?}");
        }
    }

    #[test]
    fn constraint_errors_carry_their_extended_code() {
        let error = WireError::new("SQLITE_CONSTRAINT_UNIQUE", "no");
        let mut out = Vec::new();
        error.write(&mut out);
        let text = String::from_utf8(out).expect("UTF-8");
        assert!(text.contains(r#""extended_code":"SQLITE_CONSTRAINT_UNIQUE""#));
        assert_eq!(error.status(), 400);
    }
}
