//! A batch: everything a copy at `from` needs in order to be exactly the source at `to`.
//!
//! A stream of records, each `tag u8, length varint, body`, in a fixed order:
//!
//! ```text
//! "TGB1"  Header  (Interval | Ddl)*  (Table Row*)*  Sequences? Pragmas? Triggers?  End
//! ```
//!
//! The intervals and schema statements are the stretch of the log itself; the rows are what
//! the touched rows are at `to`; the final values come last because they are set last. End
//! holds the number of rows and a hash of every byte before it, so a batch that was cut or
//! damaged is never applied. A record or version that this code does not know stops the
//! reader: nothing is ever skipped. Byte by byte in `docs/protocol.md`.

use std::ops::Range;

use xxhash_rust::xxh3::Xxh3;

use crate::change::{Ddl, Interval, LogItem, Seq};
use crate::codec::{self, Reader};
use crate::error::{Error, Result};
use crate::finals::{HeaderValues, Sequence};
use crate::spool::Spool;
use crate::triggers::Trigger;
use crate::value::ValueRef;

/// The first bytes of a batch; the digit is the version of the format.
const MAGIC: [u8; 4] = *b"TGB1";
/// No record is longer: the engine's own limit on a value is below it.
const RECORD_BYTES_MAX: u64 = 2 << 30;
/// Bytes read from the spool at a time.
const WINDOW_BYTES: usize = 256 << 10;
/// Memory that is kept from record to record; a larger record gives its own back.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// Bytes of a record before its body, at most.
const HEAD_BYTES_MAX: usize = 1 + codec::VARINT_BYTES_MAX;

const HEADER: u8 = 1;
const INTERVAL: u8 = 2;
const DDL: u8 = 3;
const TABLE: u8 = 4;
const ROW: u8 = 5;
const SEQUENCES: u8 = 6;
const PRAGMAS: u8 = 7;
const TRIGGERS: u8 = 8;
const END: u8 = 9;

/// A batch ready to be sent.
pub struct Batch {
    /// The position it starts from.
    pub from: Seq,
    /// The position it leads to.
    pub to: Seq,
    /// Rows in it.
    pub rows: u64,
    /// Its bytes.
    pub spool: Spool,
}

/// What a batch says first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The position it starts from.
    pub from: Seq,
    /// The position it leads to.
    pub to: Seq,
    /// When its source read it, in milliseconds since 1970, by the source's clock.
    pub committed_ms: i64,
}

/// One record of a batch, borrowed from the reader.
#[derive(Debug, PartialEq)]
pub enum Record<'a> {
    /// A part of the log.
    Item(LogItem),
    /// The rows that follow belong to this table.
    Table {
        /// Its name at the batch's end.
        name: &'a str,
        /// The columns that each row gives, in order.
        columns: Vec<&'a str>,
    },
    /// A row as it is at the batch's end.
    Row {
        /// Its row id.
        rowid: i64,
        /// A value for each column of the table record.
        values: Vec<ValueRef<'a>>,
    },
    /// All sequences, when they changed.
    Sequences(Vec<Sequence>),
    /// `user_version` and `application_id`, when they changed.
    Pragmas(HeaderValues),
    /// The complete ordered trigger set, when it changed.
    Triggers(Vec<Trigger>),
    /// The end, checked.
    End {
        /// Rows in the batch.
        rows: u64,
    },
}

/// Writes records into a spool.
pub struct BatchWriter {
    spool: Spool,
    body: Vec<u8>,
    head: Vec<u8>,
    header: Header,
    rows: u64,
}

/// Reads records from a spool.
pub struct BatchReader<'a> {
    spool: &'a Spool,
    /// Bytes of the spool that went through the window.
    fetched: u64,
    window: Vec<u8>,
    /// The record in the window: where its body starts and where it ends.
    body: Range<usize>,
    hasher: Box<Xxh3>,
    stage: u8,
    columns: usize,
    rows: u64,
}

impl BatchWriter {
    /// Begins a batch in an empty spool.
    pub fn begin(mut spool: Spool, header: Header) -> Result<Self> {
        assert!(spool.is_empty(), "a batch begins at the first byte");
        spool.append(&MAGIC)?;
        let mut writer = Self {
            spool,
            body: Vec::new(),
            head: Vec::new(),
            header,
            rows: 0,
        };
        codec::put_varint(&mut writer.body, header.from.get());
        codec::put_varint(&mut writer.body, header.to.get());
        codec::put_signed(&mut writer.body, header.committed_ms);
        writer.flush(HEADER)?;
        Ok(writer)
    }

    /// Bytes so far.
    pub fn len(&self) -> u64 {
        self.spool.len()
    }

    /// Never true: a batch begins with its header.
    pub fn is_empty(&self) -> bool {
        self.spool.is_empty()
    }

    /// A part of the log.
    pub fn item(&mut self, item: &LogItem) -> Result<()> {
        match item {
            LogItem::Interval(interval) => {
                codec::put_varint(&mut self.body, interval.from.get());
                codec::put_varint(&mut self.body, interval.to.get());
                let keys = codec::encode_keys(&interval.touched);
                self.body.extend_from_slice(&keys);
                self.flush(INTERVAL)
            }
            LogItem::Ddl(ddl) => {
                codec::put_varint(&mut self.body, ddl.seq.get());
                codec::put_bytes(&mut self.body, ddl.sql.as_bytes());
                self.flush(DDL)
            }
        }
    }

    /// Begins the rows of a table.
    pub fn table(&mut self, name: &str, columns: &[String]) -> Result<()> {
        codec::put_bytes(&mut self.body, name.as_bytes());
        codec::put_varint(&mut self.body, columns.len() as u64);
        for column in columns {
            codec::put_bytes(&mut self.body, column.as_bytes());
        }
        self.flush(TABLE)
    }

    /// A row of the table begun last.
    pub fn row<'v>(
        &mut self,
        rowid: i64,
        values: impl Iterator<Item = ValueRef<'v>>,
    ) -> Result<()> {
        codec::put_signed(&mut self.body, rowid);
        for value in values {
            codec::put_value(&mut self.body, value);
        }
        self.rows += 1;
        self.flush(ROW)
    }

    /// All sequences.
    pub fn sequences(&mut self, sequences: &[Sequence]) -> Result<()> {
        codec::put_varint(&mut self.body, sequences.len() as u64);
        for sequence in sequences {
            codec::put_bytes(&mut self.body, sequence.name.as_bytes());
            codec::put_value(&mut self.body, sequence.value.as_ref());
        }
        self.flush(SEQUENCES)
    }

    /// The two numbers of the file's header.
    pub fn pragmas(&mut self, values: HeaderValues) -> Result<()> {
        codec::put_signed(&mut self.body, values.user_version);
        codec::put_signed(&mut self.body, values.application_id);
        self.flush(PRAGMAS)
    }

    /// The trigger set.
    pub fn triggers(&mut self, triggers: &[Trigger]) -> Result<()> {
        codec::put_varint(&mut self.body, triggers.len() as u64);
        for trigger in triggers {
            codec::put_bytes(&mut self.body, trigger.name.as_bytes());
            codec::put_bytes(&mut self.body, trigger.sql.as_bytes());
        }
        self.flush(TRIGGERS)
    }

    /// Ends the batch.
    pub fn finish(mut self) -> Result<Batch> {
        let hash = self.spool.hash();
        codec::put_varint(&mut self.body, self.rows);
        self.body.extend_from_slice(&hash.to_le_bytes());
        self.flush(END)?;
        Ok(Batch {
            from: self.header.from,
            to: self.header.to,
            rows: self.rows,
            spool: self.spool,
        })
    }

    fn flush(&mut self, tag: u8) -> Result<()> {
        self.head.clear();
        self.head.push(tag);
        codec::put_varint(&mut self.head, self.body.len() as u64);
        self.spool.append(&self.head)?;
        self.spool.append(&self.body)?;
        self.body.clear();
        self.body.shrink_to(KEPT_BYTES_MAX);
        Ok(())
    }
}

impl<'a> BatchReader<'a> {
    /// Reads the header.
    pub fn open(spool: &'a Spool) -> Result<(Self, Header)> {
        let mut reader = Self {
            spool,
            fetched: 0,
            window: Vec::new(),
            body: 0..0,
            hasher: Box::new(Xxh3::new()),
            stage: HEADER,
            columns: 0,
            rows: 0,
        };
        reader.fetch(MAGIC.len() as u64)?;
        let magic = &reader.window[..MAGIC.len()];
        if magic != MAGIC {
            return Err(Error::Format(format!(
                "a batch begins with {magic:02x?}; this version of Tidegate knows TGB1"
            )));
        }
        reader.hasher.update(&MAGIC);
        reader.body = 0..MAGIC.len();
        let (tag, _) = reader.record()?;
        if tag != HEADER {
            return Err(Error::Format(
                "a batch does not begin with its header".into(),
            ));
        }
        let header = parse_header(reader.body())?;
        Ok((reader, header))
    }

    /// The next record. After `End` nothing may be read.
    pub fn read(&mut self) -> Result<Record<'_>> {
        let (tag, hash_before) = self.record()?;
        self.check_order(tag)?;
        match tag {
            INTERVAL => parse_interval(self.body()).map(Record::Item),
            DDL => parse_ddl(self.body()).map(Record::Item),
            TABLE => {
                let (name, columns) = parse_table(&self.window[self.body.clone()])?;
                self.columns = columns.len();
                Ok(Record::Table { name, columns })
            }
            ROW => {
                self.rows += 1;
                parse_row(self.body(), self.columns)
            }
            SEQUENCES => parse_sequences(self.body()).map(Record::Sequences),
            PRAGMAS => parse_pragmas(self.body()).map(Record::Pragmas),
            TRIGGERS => parse_triggers(self.body()).map(Record::Triggers),
            END => self.parse_end(hash_before),
            other => Err(Error::Format(format!(
                "a record of unknown type {other}; a newer version wrote this batch"
            ))),
        }
    }

    fn body(&self) -> &[u8] {
        &self.window[self.body.clone()]
    }

    /// Bytes after the present record.
    fn left(&self) -> u64 {
        let ahead = self.window.len() - self.body.end;
        self.spool.len() - self.fetched + ahead as u64
    }

    /// Moves on to the next record. Gives its tag and, for the end, the hash of what was
    /// before it.
    fn record(&mut self) -> Result<(u8, u128)> {
        self.fetch(self.left().min(HEAD_BYTES_MAX as u64))?;
        let mut head = Reader::new(&self.window[self.body.end..]);
        let before = head.remaining();
        let tag = head.byte()?;
        let length = head.varint()?;
        let head_bytes = before - head.remaining();
        let left = self.left() - head_bytes as u64;
        if length > left || length > RECORD_BYTES_MAX {
            return Err(Error::Format(format!(
                "a record of {length} bytes where {left} are left"
            )));
        }
        self.fetch(head_bytes as u64 + length)?;
        let start = self.body.end;
        let body = start + head_bytes;
        let length = usize::try_from(length).expect("records are bounded");
        self.body = body..body + length;
        let hash_before = match tag {
            END => self.hasher.digest128(),
            _ => 0,
        };
        self.hasher.update(&self.window[start..self.body.end]);
        Ok((tag, hash_before))
    }

    /// Brings at least `count` bytes after the present record into the window. Only bytes
    /// that are there are allocated for.
    fn fetch(&mut self, count: u64) -> Result<()> {
        if count > self.left() {
            return Err(Error::Format("a batch ends too early".into()));
        }
        let count = usize::try_from(count).expect("records are bounded");
        let present = self.window.len() - self.body.end;
        if present >= count {
            return Ok(());
        }
        self.window.drain(..self.body.end);
        self.window.shrink_to(KEPT_BYTES_MAX.max(count));
        self.body = 0..0;
        let rest = self.spool.len() - self.fetched;
        let more = rest.min(WINDOW_BYTES.max(count - present) as u64);
        let more = usize::try_from(more).expect("bounded by a record");
        self.window.resize(present + more, 0);
        self.spool
            .read_exact_at(&mut self.window[present..], self.fetched)?;
        self.fetched += more as u64;
        Ok(())
    }

    fn check_order(&mut self, tag: u8) -> Result<()> {
        let is_log = |tag| tag == INTERVAL || tag == DDL;
        let is_rows = |tag| tag == TABLE || tag == ROW;
        let allowed = match self.stage {
            HEADER => tag != ROW && tag != HEADER,
            stage if is_log(stage) => is_log(tag) || (tag > DDL && tag != ROW),
            stage if is_rows(stage) => tag >= TABLE,
            END => false,
            stage => tag > stage,
        };
        if !allowed {
            return Err(Error::Format(format!(
                "a record of type {tag} after one of type {}",
                self.stage
            )));
        }
        self.stage = tag;
        Ok(())
    }

    fn parse_end(&self, hash_before: u128) -> Result<Record<'static>> {
        let mut reader = Reader::new(self.body());
        let rows = reader.varint()?;
        let hash = reader.take(16)?.try_into().expect("sixteen bytes");
        reader.finish()?;
        if u128::from_le_bytes(hash) != hash_before {
            return Err(Error::Format("the hash of a batch does not match".into()));
        }
        if rows != self.rows || self.left() > 0 {
            return Err(Error::Format(format!(
                "a batch of {rows} rows held {} and {} more bytes",
                self.rows,
                self.left()
            )));
        }
        Ok(Record::End { rows })
    }
}

fn parse_header(body: &[u8]) -> Result<Header> {
    let mut reader = Reader::new(body);
    let header = Header {
        from: parse_seq(&mut reader)?,
        to: parse_seq(&mut reader)?,
        committed_ms: reader.signed()?,
    };
    reader.finish()?;
    if header.to < header.from {
        return Err(Error::Format("a batch that leads backwards".into()));
    }
    Ok(header)
}

fn parse_interval(body: &[u8]) -> Result<LogItem> {
    let mut reader = Reader::new(body);
    let from = parse_seq(&mut reader)?;
    let to = parse_seq(&mut reader)?;
    let touched = codec::decode_keys(reader.take(reader.remaining())?)?;
    Ok(LogItem::Interval(Interval { from, to, touched }))
}

fn parse_ddl(body: &[u8]) -> Result<LogItem> {
    let mut reader = Reader::new(body);
    let seq = parse_seq(&mut reader)?;
    let sql = reader.text()?.to_owned();
    reader.finish()?;
    Ok(LogItem::Ddl(Ddl { seq, sql }))
}

fn parse_table(body: &[u8]) -> Result<(&str, Vec<&str>)> {
    let mut reader = Reader::new(body);
    let name = reader.text()?;
    let columns = (0..reader.count()?)
        .map(|_| reader.text())
        .collect::<Result<Vec<_>>>()?;
    reader.finish()?;
    Ok((name, columns))
}

fn parse_row(body: &[u8], columns: usize) -> Result<Record<'_>> {
    let mut reader = Reader::new(body);
    let rowid = reader.signed()?;
    let values = (0..columns)
        .map(|_| reader.value())
        .collect::<Result<Vec<_>>>()?;
    reader.finish()?;
    Ok(Record::Row { rowid, values })
}

fn parse_sequences(body: &[u8]) -> Result<Vec<Sequence>> {
    let mut reader = Reader::new(body);
    let mut sequences = Vec::new();
    for _ in 0..reader.count()? {
        let name = reader.text()?.to_owned();
        let value = reader.value()?.to_value();
        let value = value.ok_or_else(|| Error::Format("a sequence is not UTF-8".into()))?;
        sequences.push(Sequence { name, value });
    }
    reader.finish()?;
    Ok(sequences)
}

fn parse_pragmas(body: &[u8]) -> Result<HeaderValues> {
    let mut reader = Reader::new(body);
    let values = HeaderValues {
        user_version: reader.signed()?,
        application_id: reader.signed()?,
    };
    reader.finish()?;
    Ok(values)
}

fn parse_triggers(body: &[u8]) -> Result<Vec<Trigger>> {
    let mut reader = Reader::new(body);
    let mut triggers = Vec::new();
    for _ in 0..reader.count()? {
        let name = reader.text()?.to_owned();
        let sql = reader.text()?.to_owned();
        triggers.push(Trigger { name, sql });
    }
    reader.finish()?;
    Ok(triggers)
}

/// The engine counts in `i64`, so a position beyond it was never written.
fn parse_seq(reader: &mut Reader<'_>) -> Result<Seq> {
    let value = reader.varint()?;
    match i64::try_from(value) {
        Ok(_) => Ok(Seq::new(value)),
        Err(_) => Err(Error::Format(format!("position {value} is out of range"))),
    }
}
