//! Values as JSON: exact, or refused.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use tidegate_engine::Value;

use super::Dialect;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A value as it is on the wire, not yet checked.
#[derive(Debug, Deserialize)]
pub struct WireValue<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    #[serde(borrow)]
    base64: Option<Cow<'a, str>>,
}

impl WireValue<'_> {
    /// The value, or what is wrong with it.
    pub fn decode(&self) -> Result<Value, String> {
        match self.r#type.as_ref() {
            "null" => Ok(Value::Null),
            "integer" => self.integer().map(Value::Integer),
            "float" => self.float(),
            "text" => serde_json::from_str(self.raw()?)
                .map(Value::Text)
                .map_err(|e| format!("a text value must be a JSON string: {e}")),
            "blob" => self.blob().map(Value::Blob),
            other => Err(format!("`{other}` is not a type of value")),
        }
    }

    fn raw(&self) -> Result<&str, String> {
        self.value
            .map(RawValue::get)
            .ok_or_else(|| format!("a value of type `{}` needs `value`", self.r#type))
    }

    /// A decimal string; a bare JSON integer is taken too, a fraction or exponent is not.
    fn integer(&self) -> Result<i64, String> {
        let raw = self.raw()?;
        raw.trim_matches('"')
            .parse()
            .map_err(|_| format!("{raw} is not a 64-bit integer as a decimal string"))
    }

    /// A JSON number. One too large for a double is infinity, as it is written.
    fn float(&self) -> Result<Value, String> {
        let raw = self.raw()?;
        let is_number = raw.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        match raw.parse::<f64>() {
            Ok(number) if is_number => Ok(Value::Real(number)),
            _ => Err(format!("{raw} is not a number")),
        }
    }

    fn blob(&self) -> Result<Vec<u8>, String> {
        let text = self.base64.as_deref().ok_or("a blob needs `base64`")?;
        BASE64
            .decode(text)
            .map_err(|e| format!("a blob is not base64: {e}"))
    }
}

/// Writes a value as a JSON object.
pub fn write_value(out: &mut Vec<u8>, value: &Value, dialect: Dialect) {
    match value {
        Value::Null => out.extend_from_slice(br#"{"type":"null"}"#),
        Value::Integer(i) => {
            out.extend_from_slice(br#"{"type":"integer","value":""#);
            write_integer(out, *i);
            out.extend_from_slice(br#""}"#);
        }
        Value::Real(r) => {
            out.extend_from_slice(br#"{"type":"float","value":"#);
            write_float(out, *r, dialect);
            out.push(b'}');
        }
        Value::Text(t) => {
            out.extend_from_slice(br#"{"type":"text","value":"#);
            write_string(out, t);
            out.push(b'}');
        }
        Value::Blob(b) => {
            out.extend_from_slice(br#"{"type":"blob","base64":""#);
            write_base64(out, b);
            out.extend_from_slice(br#""}"#);
        }
    }
}

/// Writes an integer in decimal.
pub fn write_integer(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    use std::io::Write;
    write!(out, "{value}").expect("a Vec takes everything");
}

/// Writes a JSON string with its quotes. See the module's head for what is escaped and why.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut plain = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let (escape, length): (&[u8], usize) = match byte {
            b'"' => (br#"\""#, 1),
            b'\\' => (br"\\", 1),
            b'\n' => (br"\n", 1),
            b'\r' => (br"\r", 1),
            b'\t' => (br"\t", 1),
            0xc2 if bytes[at..].starts_with(b"\xc2\x85") => (br"\u0085", 2),
            0xe2 if bytes[at..].starts_with(b"\xe2\x80\xa8") => (br"\u2028", 3),
            0xe2 if bytes[at..].starts_with(b"\xe2\x80\xa9") => (br"\u2029", 3),
            0..=0x1f => (b"", 1),
            _ => continue,
        };
        out.extend_from_slice(&bytes[plain..at]);
        if escape.is_empty() {
            let hex = b"0123456789abcdef";
            out.extend_from_slice(br"\u00");
            out.extend_from_slice(&[hex[usize::from(byte >> 4)], hex[usize::from(byte & 15)]]);
        } else {
            out.extend_from_slice(escape);
        }
        plain = at + length;
    }
    out.extend_from_slice(&bytes[plain..]);
    out.push(b'"');
}

/// The shortest text that reads back as the same bits; `-0.0` and `1.0` keep their point.
fn write_float(out: &mut Vec<u8>, value: f64, dialect: Dialect) {
    if value.is_finite() {
        serde_json::to_writer(out, &value).expect("a Vec takes everything");
        return;
    }
    out.extend_from_slice(match (dialect, value > 0.0) {
        (Dialect::Turso, _) => b"null".as_slice(),
        (Dialect::Libsql, true) => b"1e999",
        (Dialect::Libsql, false) => b"-1e999",
    });
}

fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    let length = base64::encoded_len(bytes.len(), false).expect("a value fits in memory");
    out.resize(start + length, 0);
    BASE64
        .encode_slice(bytes, &mut out[start..])
        .expect("the room was made for it");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: &Value, dialect: Dialect) -> String {
        let mut out = Vec::new();
        write_value(&mut out, value, dialect);
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    fn read(json: &str) -> Result<Value, String> {
        let wire: WireValue<'_> = serde_json::from_str(json).expect("an object");
        wire.decode()
    }

    #[test]
    fn every_storage_class_has_its_golden_form() {
        let golden: &[(Value, &str)] = &[
            (Value::Null, r#"{"type":"null"}"#),
            (
                Value::Integer(i64::MIN),
                r#"{"type":"integer","value":"-9223372036854775808"}"#,
            ),
            (Value::Real(1.0), r#"{"type":"float","value":1.0}"#),
            (Value::Real(-0.0), r#"{"type":"float","value":-0.0}"#),
            (Value::Real(5e-324), r#"{"type":"float","value":5e-324}"#),
            (
                Value::from("a\0\"\\\n\u{1f}é😀"),
                r#"{"type":"text","value":"a\u0000\"\\\n\u001fé😀"}"#,
            ),
            (
                Value::from("\u{85}\u{2028}\u{2029}\u{2027}"),
                "{\"type\":\"text\",\"value\":\"\\u0085\\u2028\\u2029\u{2027}\"}",
            ),
            (Value::Blob(vec![]), r#"{"type":"blob","base64":""}"#),
            (
                Value::Blob(vec![0xde, 0xad, 0xbe, 0xef]),
                r#"{"type":"blob","base64":"3q2+7w"}"#,
            ),
        ];
        for (value, json) in golden {
            assert_eq!(written(value, Dialect::Turso), *json);
            assert_eq!(read(json).as_ref(), Ok(value), "{json}");
        }
    }

    #[test]
    fn infinity_is_null_for_turso_clients_and_a_huge_number_for_libsql_ones() {
        let inf = Value::Real(f64::INFINITY);
        assert_eq!(
            written(&inf, Dialect::Turso),
            r#"{"type":"float","value":null}"#
        );
        let json = written(&inf, Dialect::Libsql);
        assert_eq!(json, r#"{"type":"float","value":1e999}"#);
        assert_eq!(read(&json), Ok(inf));
        let negative = written(&Value::Real(f64::NEG_INFINITY), Dialect::Libsql);
        assert_eq!(read(&negative), Ok(Value::Real(f64::NEG_INFINITY)));
    }

    #[test]
    fn base64_is_read_with_and_without_padding() {
        let blob = Ok(Value::Blob(vec![0xde, 0xad, 0xbe, 0xef]));
        assert_eq!(read(r#"{"type":"blob","base64":"3q2+7w"}"#), blob);
        assert_eq!(read(r#"{"type":"blob","base64":"3q2+7w=="}"#), blob);
        assert!(read(r#"{"type":"blob","base64":"3q2+7w="}"#).is_ok());
        assert!(read(r#"{"type":"blob","base64":"3q2-7w"}"#).is_err());
    }

    #[test]
    fn what_is_not_exact_is_refused() {
        for json in [
            r#"{"type":"integer","value":"9223372036854775808"}"#,
            r#"{"type":"integer","value":1.5}"#,
            r#"{"type":"integer","value":1e3}"#,
            r#"{"type":"float","value":null}"#,
            r#"{"type":"float","value":"inf"}"#,
            r#"{"type":"text","value":5}"#,
            r#"{"type":"text"}"#,
            r#"{"type":"blob"}"#,
            r#"{"type":"date","value":"x"}"#,
        ] {
            assert!(read(json).is_err(), "{json}");
        }
        assert_eq!(
            read(r#"{"type":"integer","value":5}"#),
            Ok(Value::Integer(5))
        );
        assert_eq!(read(r#"{"type":"float","value":1}"#), Ok(Value::Real(1.0)));
    }
}
