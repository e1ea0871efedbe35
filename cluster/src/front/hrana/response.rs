//! Responses, written straight into the bytes that leave.

use tidegate_engine::adapter::Column;
use tidegate_engine::result::{Described, ResultSet};
use tidegate_engine::{Seq, Value};

use super::Dialect;
use super::error::WireError;
use super::value::{write_integer, write_string, write_value};

/// Writes `{"cols":…,"rows":…,…}`.
pub fn write_result(out: &mut Vec<u8>, result: &ResultSet, dialect: Dialect) {
    out.extend_from_slice(br#"{"cols":"#);
    write_columns(out, &result.columns);
    out.extend_from_slice(br#","rows":["#);
    for (index, row) in result.rows.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_row(out, row, dialect);
    }
    out.extend_from_slice(br#"],"affected_row_count":"#);
    write_integer(out, result.changes);
    out.extend_from_slice(br#","last_insert_rowid":"#);
    write_quoted(out, result.last_insert_rowid);
    out.extend_from_slice(br#","replication_index":"#);
    write_quoted(out, result.position.map(Seq::get));
    out.extend_from_slice(br#","rows_read":"#);
    write_integer(out, result.rows_read);
    out.extend_from_slice(br#","rows_written":"#);
    write_integer(out, result.rows_written);
    out.extend_from_slice(br#","query_duration_ms":"#);
    let milliseconds = result.elapsed.as_secs_f64() * 1e3;
    write_integer(out, format_args!("{milliseconds:.3}"));
    out.push(b'}');
}

/// Writes one row: an array of values.
pub fn write_row(out: &mut Vec<u8>, row: &[Value], dialect: Dialect) {
    out.push(b'[');
    for (index, value) in row.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_value(out, value, dialect);
    }
    out.push(b']');
}

/// Writes the columns: an array of names and declared types.
pub fn write_columns(out: &mut Vec<u8>, columns: &[Column]) {
    out.push(b'[');
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(br#"{"name":"#);
        write_string(out, &column.name);
        out.extend_from_slice(br#","decltype":"#);
        match &column.decltype {
            Some(decltype) => write_string(out, decltype),
            None => out.extend_from_slice(b"null"),
        }
        out.push(b'}');
    }
    out.push(b']');
}

/// Writes what `describe` answers.
pub fn write_described(out: &mut Vec<u8>, described: &Described) {
    out.extend_from_slice(br#"{"params":["#);
    for (index, name) in described.parameters.iter().enumerate() {
        out.extend_from_slice(if index > 0 {
            br#",{"name":"#
        } else {
            br#"{"name":"#
        });
        match name {
            Some(name) => write_string(out, name),
            None => out.extend_from_slice(b"null"),
        }
        out.push(b'}');
    }
    out.extend_from_slice(br#"],"cols":"#);
    write_columns(out, &described.columns);
    write_flag(out, "is_explain", described.is_explain);
    write_flag(out, "is_readonly", described.is_readonly);
    out.push(b'}');
}

/// Writes `{"type":"ok","response":{"type":T` and lets `rest` add the other fields.
pub fn write_ok(out: &mut Vec<u8>, kind: &str, rest: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(br#"{"type":"ok","response":"#);
    write_response(out, kind, rest);
    out.push(b'}');
}

/// Writes `{"type":T`, then what `rest` adds, then `}`.
pub fn write_response(out: &mut Vec<u8>, kind: &str, rest: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(kind.as_bytes());
    out.push(b'"');
    rest(out);
    out.push(b'}');
}

/// Writes `{"type":"error","error":…}`.
pub fn write_failed(out: &mut Vec<u8>, error: &WireError) {
    out.extend_from_slice(br#"{"type":"error","error":"#);
    error.write(out);
    out.push(b'}');
}

/// Writes `,"name":true`.
pub fn write_flag(out: &mut Vec<u8>, name: &str, flag: bool) {
    write_integer(out, format_args!(",\"{name}\":{flag}"));
}

/// Writes a number as a decimal string, or null.
pub fn write_quoted(out: &mut Vec<u8>, number: Option<impl std::fmt::Display>) {
    match number {
        Some(number) => write_integer(out, format_args!("\"{number}\"")),
        None => out.extend_from_slice(b"null"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_result_has_its_golden_form() {
        let result = ResultSet {
            columns: vec![
                Column {
                    name: "id".into(),
                    decltype: Some("INTEGER".into()),
                },
                Column {
                    name: "1+1".into(),
                    decltype: None,
                },
            ],
            rows: vec![vec![Value::Integer(1), Value::Null]],
            changes: 1,
            last_insert_rowid: Some(-7),
            position: Some(Seq::new(12)),
            rows_read: 1,
            rows_written: 2,
            elapsed: Duration::from_micros(1500),
        };
        let mut out = Vec::new();
        write_result(&mut out, &result, Dialect::Turso);
        let golden = concat!(
            r#"{"cols":[{"name":"id","decltype":"INTEGER"},{"name":"1+1","decltype":null}],"#,
            r#""rows":[[{"type":"integer","value":"1"},{"type":"null"}]],"#,
            r#""affected_row_count":1,"last_insert_rowid":"-7","replication_index":"12","#,
            r#""rows_read":1,"rows_written":2,"query_duration_ms":1.500}"#
        );
        assert_eq!(String::from_utf8(out).expect("UTF-8"), golden);
    }

    #[test]
    fn a_description_has_its_golden_form() {
        let described = Described {
            columns: vec![],
            parameters: vec![None, Some(":a".into())],
            is_readonly: true,
            is_explain: false,
        };
        let mut out = Vec::new();
        write_ok(&mut out, "describe", |out| {
            out.extend_from_slice(br#","result":"#);
            write_described(out, &described);
        });
        let golden = concat!(
            r#"{"type":"ok","response":{"type":"describe","result":{"params":[{"name":null},"#,
            r#"{"name":":a"}],"cols":[],"is_explain":false,"is_readonly":true}}}"#
        );
        assert_eq!(String::from_utf8(out).expect("UTF-8"), golden);
    }
}
