//! Syntax errors in SQLite's words, with the place where they are.

use turso_parser::error::Error as ParserError;

use crate::error::Error;

/// An error in the statement itself, as SQLite would report it.
pub(super) fn sql_error(message: String) -> Error {
    Error::Sql {
        code: "SQLITE_ERROR",
        message,
    }
}

/// What the parser or the lexer has to say about `sql`.
pub(super) fn parser_error(sql: &str, error: &ParserError) -> Error {
    use ParserError as P;
    let message = match error {
        P::UnrecognizedToken {
            token_text, offset, ..
        }
        | P::UnterminatedLiteral {
            token_text, offset, ..
        }
        | P::UnterminatedBracket {
            token_text, offset, ..
        }
        | P::UnterminatedBlockComment {
            token_text, offset, ..
        }
        | P::BadNumber {
            token_text, offset, ..
        }
        | P::BadFractionalPart {
            token_text, offset, ..
        }
        | P::BadExponentPart {
            token_text, offset, ..
        }
        | P::ExpectedEqualsSign {
            token_text, offset, ..
        }
        | P::MalformedHexInteger {
            token_text, offset, ..
        } => format!(
            "unrecognized token: \"{}\"{}",
            shorten(token_text),
            place(sql, *offset)
        ),
        P::ParseUnexpectedToken {
            token_text, offset, ..
        } => format!(
            "near \"{}\": syntax error{}",
            shorten(token_text),
            place(sql, *offset)
        ),
        P::ParseUnexpectedEOF => "incomplete input".to_owned(),
        other => {
            let message = other.to_string();
            message
                .strip_prefix("Parse error: ")
                .unwrap_or(&message)
                .to_owned()
        }
    };
    sql_error(message)
}

/// Columns count characters from 1. An offset that is no place in the text is left out.
fn place(sql: &str, offset: usize) -> String {
    let Some(before) = sql.get(..offset) else {
        return String::new();
    };
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    format!(" (line {line}, column {column})")
}

/// A token is as long as its text, which may be a megabyte.
fn shorten(token: &str) -> String {
    const CHARS_MAX: usize = 60;
    if token.chars().count() <= CHARS_MAX {
        return token.to_owned();
    }
    let head: String = token.chars().take(CHARS_MAX).collect();
    format!("{head}…")
}
