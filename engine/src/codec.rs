//! Bytes of batches and key lists: varints, values, key lists.
//!
//! Everything is little and explicit, because these bytes are stored in files and cross
//! between versions. The reader trusts nothing: a length is compared with what is really
//! there before anything is taken or allocated, and a number too long for its type is an
//! error. The drawings are in `docs/protocol.md`.

use crate::change::Touched;
use crate::error::{Error, Result};
use crate::value::ValueRef;

const TAG_NULL: u8 = 0;
const TAG_INTEGER: u8 = 1;
const TAG_REAL: u8 = 2;
const TAG_TEXT: u8 = 3;
const TAG_BLOB: u8 = 4;

/// A varint of a `u64` takes at most this many bytes.
pub const VARINT_BYTES_MAX: usize = 10;

/// Version byte of a key list.
const KEYS_VERSION: u8 = 1;

/// Appends a varint: seven bits a byte, lowest first, the high bit on all but the last.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed varint: zigzag, so that small negative numbers stay short.
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends a length and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a value: its type tag and its exact content.
pub fn put_value(out: &mut Vec<u8>, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => out.push(TAG_NULL),
        ValueRef::Integer(i) => {
            out.push(TAG_INTEGER);
            put_signed(out, i);
        }
        ValueRef::Real(r) => {
            out.push(TAG_REAL);
            out.extend_from_slice(&r.to_bits().to_le_bytes());
        }
        ValueRef::Text(text) => {
            out.push(TAG_TEXT);
            put_bytes(out, text);
        }
        ValueRef::Blob(blob) => {
            out.push(TAG_BLOB);
            put_bytes(out, blob);
        }
    }
}

/// Encodes touched keys: for each table its name and the row ids as gaps.
pub fn encode_keys(touched: &Touched) -> Vec<u8> {
    let mut out = vec![KEYS_VERSION];
    put_varint(&mut out, touched.len() as u64);
    for (table, keys) in touched {
        put_bytes(&mut out, table.as_bytes());
        put_varint(&mut out, keys.len() as u64);
        let mut previous = None;
        for &key in keys {
            match previous {
                None => put_signed(&mut out, key),
                Some(previous) => put_varint(&mut out, key.wrapping_sub(previous) as u64),
            }
            previous = Some(key);
        }
    }
    out
}

/// Decodes what [`encode_keys`] wrote. Keys must ascend strictly.
pub fn decode_keys(bytes: &[u8]) -> Result<Touched> {
    let mut reader = Reader::new(bytes);
    let version = reader.byte()?;
    if version != KEYS_VERSION {
        return Err(Error::Format(format!(
            "a key list of version {version}; this version of Tidegate knows {KEYS_VERSION}"
        )));
    }
    let touched = reader.touched()?;
    reader.finish()?;
    Ok(touched)
}

/// Takes bytes apart.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the first byte on.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// One byte.
    pub fn byte(&mut self) -> Result<u8> {
        let (&first, rest) = self.rest.split_first().ok_or_else(short)?;
        self.rest = rest;
        Ok(first)
    }

    /// So many bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        if count > self.rest.len() {
            return Err(short());
        }
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(taken)
    }

    /// A varint.
    pub fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for index in 0..VARINT_BYTES_MAX {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if index == VARINT_BYTES_MAX - 1 && bits > 1 {
                break;
            }
            value |= bits << (7 * index);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::Format("a number is longer than 64 bits".into()))
    }

    /// A signed varint.
    pub fn signed(&mut self) -> Result<i64> {
        let raw = self.varint()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// A count of things that take at least one byte each, so it cannot exceed what is left.
    pub fn count(&mut self) -> Result<usize> {
        let count = self.varint()?;
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= self.rest.len())
            .ok_or_else(short)
    }

    /// A length and that many bytes.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.count()?;
        self.take(length)
    }

    /// Bytes that must be UTF-8.
    pub fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?)
            .map_err(|_| Error::Format("a name or text is not UTF-8".into()))
    }

    /// A value.
    pub fn value(&mut self) -> Result<ValueRef<'a>> {
        Ok(match self.byte()? {
            TAG_NULL => ValueRef::Null,
            TAG_INTEGER => ValueRef::Integer(self.signed()?),
            TAG_REAL => {
                let bytes = self.take(8)?.try_into().expect("eight bytes were taken");
                ValueRef::Real(f64::from_bits(u64::from_le_bytes(bytes)))
            }
            TAG_TEXT => ValueRef::Text(self.bytes()?),
            TAG_BLOB => ValueRef::Blob(self.bytes()?),
            other => return Err(Error::Format(format!("a value of unknown type {other}"))),
        })
    }

    /// Fails unless everything was read.
    pub fn finish(self) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(Error::Format(format!("{left} bytes too many in a record"))),
        }
    }

    fn touched(&mut self) -> Result<Touched> {
        let mut touched = Touched::new();
        for _ in 0..self.count()? {
            let table = self.text()?.to_owned();
            let keys = self.keys()?;
            if touched.insert(table, keys).is_some() {
                return Err(Error::Format("a table is listed twice".into()));
            }
        }
        Ok(touched)
    }

    fn keys(&mut self) -> Result<Vec<i64>> {
        let count = self.count()?;
        let mut keys = Vec::with_capacity(count);
        for index in 0..count {
            let key = match keys.last() {
                None => self.signed()?,
                Some(&last) => next_key(last, self.varint()?)?,
            };
            debug_assert!(keys.len() == index);
            keys.push(key);
        }
        Ok(keys)
    }
}

fn next_key(last: i64, gap: u64) -> Result<i64> {
    last.checked_add_unsigned(gap)
        .filter(|key| *key > last)
        .ok_or_else(|| Error::Format("row ids in a key list do not ascend".into()))
}

fn short() -> Error {
    Error::Format("a record ends too early".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn key_lists_hold_the_extremes() {
        let touched = Touched::from([
            ("a".to_owned(), vec![i64::MIN, -1, 0, i64::MAX]),
            ("b".to_owned(), vec![]),
        ]);
        assert_eq!(decode_keys(&encode_keys(&touched)).unwrap(), touched);
    }

    #[test]
    fn dense_keys_take_one_byte_each() {
        let touched = Touched::from([("t".to_owned(), (1..=1000).collect())]);
        assert!(encode_keys(&touched).len() < 1010);
    }

    #[test]
    fn a_count_larger_than_the_bytes_is_refused_before_allocating() {
        let mut bytes = vec![KEYS_VERSION, 1, 1, b't'];
        put_varint(&mut bytes, u64::MAX);
        assert!(matches!(decode_keys(&bytes), Err(Error::Format(_))));
    }

    #[test]
    fn keys_that_do_not_ascend_are_refused() {
        let bytes = [KEYS_VERSION, 1, 1, b't', 2, 2, 0];
        assert!(matches!(decode_keys(&bytes), Err(Error::Format(_))));
    }

    proptest! {
        #[test]
        fn numbers_survive(value: u64, signed: i64) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            put_signed(&mut out, signed);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint().unwrap(), value);
            prop_assert_eq!(reader.signed().unwrap(), signed);
            prop_assert!(reader.finish().is_ok());
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = decode_keys(&bytes);
            let mut reader = Reader::new(&bytes);
            while reader.value().is_ok() && reader.remaining() > 0 {}
        }
    }
}
