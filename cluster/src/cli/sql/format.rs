//! Rows as people and programs read them.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use tidegate_engine::Value;

use super::client::Answer;

/// How rows are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// A table.
    Table,
    /// One JSON array of objects for each statement.
    Json,
    /// Comma-separated, with a head.
    Csv,
    /// One column a line.
    Line,
}

/// Shows an answer's rows, with a line's end. Nothing for statements without columns.
pub fn rows(answer: &Answer, mode: Mode) -> String {
    if answer.columns.is_empty() {
        return String::new();
    }
    match mode {
        Mode::Table => table(answer),
        Mode::Json => json(answer),
        Mode::Csv => csv(answer),
        Mode::Line => lines(answer),
    }
}

/// A value as an SQL literal that reads back as the same bytes.
pub fn literal(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Integer(i) => i.to_string(),
        Value::Real(r) => real_literal(*r),
        Value::Text(t) if t.contains('\0') => format!("CAST({} AS TEXT)", hex(t.as_bytes())),
        Value::Text(t) => format!("'{}'", t.replace('\'', "''")),
        Value::Blob(b) => hex(b),
    }
}

fn real_literal(real: f64) -> String {
    if real == f64::INFINITY {
        "9e999".to_owned()
    } else if real == f64::NEG_INFINITY {
        "-9e999".to_owned()
    } else {
        // `{:?}` is the shortest text that reads back, and keeps the point.
        format!("{real:?}")
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(bytes.len() * 2 + 3);
    text.push_str("x'");
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String takes everything");
    }
    text.push('\'');
    text
}

/// A value for reading; NULL is nothing.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Text(t) => t.clone(),
        other => literal(other),
    }
}

fn table(answer: &Answer) -> String {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table.set_header(&answer.columns);
    for row in &answer.rows {
        table.add_row(row.iter().map(|value| match value {
            Value::Null => "NULL".to_owned(),
            value => plain(value),
        }));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        let number = |row: &Vec<Value>| {
            matches!(row[index], Value::Integer(_) | Value::Real(_) | Value::Null)
        };
        if answer.rows.iter().all(number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{table}\n")
}

/// Integers beyond 2^53 and infinities have no exact JSON number: they become strings.
fn json(answer: &Answer) -> String {
    const EXACT: i64 = 1 << 53;
    let value = |value: &Value| match value {
        Value::Null => serde_json::Value::Null,
        Value::Integer(i) if (-EXACT..=EXACT).contains(i) => (*i).into(),
        Value::Real(r) if r.is_finite() => (*r).into(),
        other => plain(other).into(),
    };
    let rows: serde_json::Value = answer
        .rows
        .iter()
        .map(|row| {
            let pairs = answer.columns.iter().cloned().zip(row.iter().map(value));
            serde_json::Value::Object(pairs.collect())
        })
        .collect();
    format!("{rows}\n")
}

fn csv(answer: &Answer) -> String {
    let line = |cells: Vec<String>| {
        let quoted: Vec<String> = cells.into_iter().map(csv_cell).collect();
        quoted.join(",") + "\r\n"
    };
    let mut text = line(answer.columns.clone());
    for row in &answer.rows {
        text += &line(row.iter().map(plain).collect());
    }
    text
}

fn csv_cell(cell: String) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell
    }
}

fn lines(answer: &Answer) -> String {
    let width = answer.columns.iter().map(|c| c.chars().count()).max();
    let width = width.unwrap_or_default();
    let mut text = String::new();
    for row in &answer.rows {
        for (column, value) in answer.columns.iter().zip(row) {
            text += &format!("{column:>width$} = {}\n", plain(value));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        Answer {
            columns: vec!["id".into(), "name".into()],
            rows: vec![
                vec![Value::Integer(1), Value::from("a,\"b\"")],
                vec![Value::Integer(i64::MAX), Value::Null],
            ],
            changes: 0,
        }
    }

    #[test]
    fn json_keeps_large_integers_exact() {
        assert_eq!(
            rows(&answer(), Mode::Json),
            "[{\"id\":1,\"name\":\"a,\\\"b\\\"\"},{\"id\":\"9223372036854775807\",\"name\":null}]\n"
        );
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        let text = rows(&answer(), Mode::Csv);
        assert!(text.starts_with("id,name\r\n1,\"a,\"\"b\"\"\"\r\n"));
    }

    #[test]
    fn literals_read_back_as_the_same_bytes() {
        let cases: [(Value, &str); 7] = [
            (Value::Real(1.0), "1.0"),
            (Value::Real(-0.0), "-0.0"),
            (Value::Real(f64::NEG_INFINITY), "-9e999"),
            (Value::from("it's"), "'it''s'"),
            (Value::from("a\0"), "CAST(x'6100' AS TEXT)"),
            (Value::Blob(vec![0, 255]), "x'00ff'"),
            (Value::Null, "NULL"),
        ];
        for (value, text) in cases {
            assert_eq!(literal(&value), text);
        }
    }
}
