//! Values as the engine stores them: the five storage classes, exactly.
//!
//! Two forms exist. [`ValueRef`] borrows from the row under the cursor and costs nothing;
//! scans, digests and batches use it. [`Value`] owns its bytes and crosses threads.
//! Neither compares with SQL's rules: `1` and `1.0` are different values here, `-0.0` and
//! `0.0` too, because replication must keep what SQL's `=` forgives.

/// A value that owns its bytes.
#[derive(Debug, Clone)]
pub enum Value {
    /// SQL NULL.
    Null,
    /// A 64-bit signed integer.
    Integer(i64),
    /// A double; NaN never occurs (the engine stores NULL instead).
    Real(f64),
    /// UTF-8 text, which may hold NUL characters.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

/// A value borrowed from the row under a cursor.
#[derive(Debug, Clone, Copy)]
pub enum ValueRef<'a> {
    /// SQL NULL.
    Null,
    /// A 64-bit signed integer.
    Integer(i64),
    /// A double.
    Real(f64),
    /// Text as stored. Files written elsewhere can hold bytes that are not UTF-8.
    Text(&'a [u8]),
    /// Bytes.
    Blob(&'a [u8]),
}

/// Exact identity: same storage class and same bytes.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for Value {}

impl PartialEq for ValueRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Integer(a), Self::Integer(b)) => a == b,
            (Self::Real(a), Self::Real(b)) => a.to_bits() == b.to_bits(),
            (Self::Text(a), Self::Text(b)) | (Self::Blob(a), Self::Blob(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for ValueRef<'_> {}

impl Value {
    /// Borrows the value.
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Self::Null => ValueRef::Null,
            Self::Integer(i) => ValueRef::Integer(*i),
            Self::Real(r) => ValueRef::Real(*r),
            Self::Text(t) => ValueRef::Text(t.as_bytes()),
            Self::Blob(b) => ValueRef::Blob(b),
        }
    }

    /// The integer, if it is one.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(i) => Some(*i),
            _ => None,
        }
    }

    /// The text, if it is text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(t) => Some(t),
            _ => None,
        }
    }

    /// Bytes the value holds on the heap or inline, for limits on memory.
    pub fn size_bytes(&self) -> usize {
        self.as_ref().size_bytes()
    }
}

impl<'a> ValueRef<'a> {
    /// Copies the value. Text that is not UTF-8 has no owned form: `None`.
    pub fn to_value(self) -> Option<Value> {
        Some(match self {
            Self::Null => Value::Null,
            Self::Integer(i) => Value::Integer(i),
            Self::Real(r) => Value::Real(r),
            Self::Text(t) => Value::Text(std::str::from_utf8(t).ok()?.to_owned()),
            Self::Blob(b) => Value::Blob(b.to_vec()),
        })
    }

    /// The integer, if it is one.
    pub fn as_integer(self) -> Option<i64> {
        match self {
            Self::Integer(i) => Some(i),
            _ => None,
        }
    }

    /// The text, if it is text and UTF-8.
    pub fn as_text(self) -> Option<&'a str> {
        match self {
            Self::Text(t) => std::str::from_utf8(t).ok(),
            _ => None,
        }
    }

    /// True for NULL.
    pub fn is_null(self) -> bool {
        matches!(self, Self::Null)
    }

    /// Bytes of payload: 8 for numbers, 0 for NULL.
    pub fn size_bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Integer(_) | Self::Real(_) => 8,
            Self::Text(b) | Self::Blob(b) => b.len(),
        }
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Blob(value)
    }
}
