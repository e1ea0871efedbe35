//! What a SQLite file says of itself, read without an engine.
//!
//! The engine refuses some files whole (generated columns are enough), and its message names
//! one object at best. A person who wants to bring a file deserves the whole list. So the
//! header and the schema table are read here, by the published file format: the header is
//! 100 bytes, and the schema table is an ordinary b-tree with its root on page 1.
//!
//! Only the main file is read. Nothing is ever written.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::error::{Error, Result};

const HEADER_BYTES: usize = 100;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// A schema table deeper than this is a cycle.
const DEPTH_MAX: usize = 20;
/// A longer CREATE statement is no CREATE statement.
const RECORD_BYTES_MAX: usize = 64 << 20;

/// The header's fields, as far as they matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// 1 rollback journal, 2 write-ahead log.
    pub write_version: u8,
    /// The same for readers.
    pub read_version: u8,
    /// Bytes at the end of each page that belong to an extension.
    pub reserved_bytes: u8,
    /// 0 or 1 UTF-8, 2 and 3 UTF-16.
    pub encoding: u32,
    /// Pages are moved when others are freed.
    pub auto_vacuum: bool,
    /// 4 since 2005 or so; older ones store descending indexes and booleans differently.
    pub schema_format: u32,
}

/// A row of the schema table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaRow {
    /// `table`, `index`, `view`, `trigger`.
    pub kind: String,
    /// The object's name.
    pub name: String,
    /// The table it belongs to.
    pub table: String,
    /// Its CREATE statement; automatic indexes have none.
    pub sql: Option<String>,
}

impl Header {
    /// Reads the header. `None` for an empty file, which is an empty database.
    pub fn read(file: &File) -> Result<Option<Self>> {
        if file.metadata()?.len() == 0 {
            return Ok(None);
        }
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0)
            .map_err(|_| Error::Corrupt("shorter than the header of a SQLite file".into()))?;
        if &bytes[..16] != MAGIC {
            return Err(Error::Corrupt(
                "it does not begin like a SQLite file".into(),
            ));
        }
        let page_bytes = match u16::from_be_bytes([bytes[16], bytes[17]]) {
            1 => 65_536,
            size => u32::from(size),
        };
        if !page_bytes.is_power_of_two() || page_bytes < 512 {
            return Err(Error::Corrupt(format!("a page size of {page_bytes}")));
        }
        Ok(Some(Self {
            page_bytes,
            write_version: bytes[18],
            read_version: bytes[19],
            reserved_bytes: bytes[20],
            encoding: be_u32(&bytes, 56)?,
            auto_vacuum: be_u32(&bytes, 52)? != 0,
            schema_format: be_u32(&bytes, 44)?,
        }))
    }

    fn usable_bytes(&self) -> usize {
        self.page_bytes as usize - usize::from(self.reserved_bytes)
    }
}

/// Reads the schema table of a file in UTF-8.
pub fn schema_rows(file: &File, header: &Header) -> Result<Vec<SchemaRow>> {
    let mut reader = BTreeReader {
        file,
        header,
        rows: Vec::new(),
        pages_left: file.metadata()?.len() / u64::from(header.page_bytes) + 1,
    };
    reader.walk(1, 0)?;
    Ok(reader.rows)
}

struct BTreeReader<'f> {
    file: &'f File,
    header: &'f Header,
    rows: Vec<SchemaRow>,
    /// No page is visited twice in a healthy tree.
    pages_left: u64,
}

impl BTreeReader<'_> {
    fn walk(&mut self, number: u32, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(malformed());
        }
        let page = self.page(number)?;
        let start = if number == 1 { HEADER_BYTES } else { 0 };
        let cells = usize::from(be_u16(&page, start + 3)?);
        match page.get(start) {
            Some(0x05) => {
                for cell in 0..cells {
                    let at = usize::from(be_u16(&page, start + 12 + 2 * cell)?);
                    self.walk(be_u32(&page, at)?, depth + 1)?;
                }
                self.walk(be_u32(&page, start + 8)?, depth + 1)
            }
            Some(0x0d) => {
                for cell in 0..cells {
                    let at = usize::from(be_u16(&page, start + 8 + 2 * cell)?);
                    let record = self.payload(&page, at)?;
                    self.rows.push(decode_row(&record)?);
                }
                Ok(())
            }
            _ => Err(malformed()),
        }
    }

    fn page(&mut self, number: u32) -> Result<Vec<u8>> {
        self.pages_left = self.pages_left.checked_sub(1).ok_or_else(malformed)?;
        let size = self.header.page_bytes;
        let offset = u64::from(number.checked_sub(1).ok_or_else(malformed)?) * u64::from(size);
        let mut page = vec![0; size as usize];
        self.file
            .read_exact_at(&mut page, offset)
            .map_err(|_| malformed())?;
        Ok(page)
    }

    /// The record of a leaf cell, its overflow pages included.
    fn payload(&mut self, page: &[u8], at: usize) -> Result<Vec<u8>> {
        let (bytes, at) = varint(page, at)?;
        let (_rowid, at) = varint(page, at)?;
        let total = usize::try_from(bytes).map_err(|_| malformed())?;
        if total > RECORD_BYTES_MAX {
            return Err(malformed());
        }
        let local = local_bytes(total, self.header.usable_bytes());
        let mut record = slice(page, at, local)?.to_vec();
        let mut next = match total == local {
            true => 0,
            false => be_u32(page, at + local)?,
        };
        while record.len() < total {
            let overflow = self.page(next)?;
            let part = (total - record.len()).min(self.header.usable_bytes() - 4);
            record.extend_from_slice(slice(&overflow, 4, part)?);
            next = be_u32(&overflow, 0)?;
        }
        Ok(record)
    }
}

/// How much of a record lies in its cell, by the file format.
fn local_bytes(total: usize, usable: usize) -> usize {
    let most = usable - 35;
    if total <= most {
        return total;
    }
    let least = (usable - 12) * 32 / 255 - 23;
    let wanted = least + (total - least) % (usable - 4);
    if wanted <= most { wanted } else { least }
}

fn decode_row(record: &[u8]) -> Result<SchemaRow> {
    let (header_end, mut at) = varint(record, 0)?;
    let header_end = usize::try_from(header_end).map_err(|_| malformed())?;
    let mut value_at = header_end;
    let mut texts = Vec::new();
    while at < header_end {
        let (serial_type, next) = varint(record, at)?;
        at = next;
        let bytes = value_bytes(serial_type)?;
        let is_text = serial_type >= 13 && serial_type % 2 == 1;
        let value = slice(record, value_at, bytes)?;
        texts.push(is_text.then(|| String::from_utf8_lossy(value).into_owned()));
        value_at += bytes;
    }
    let [kind, name, table, _root, sql] = texts.try_into().map_err(|_| malformed())?;
    Ok(SchemaRow {
        kind: kind.ok_or_else(malformed)?,
        name: name.ok_or_else(malformed)?,
        table: table.ok_or_else(malformed)?,
        sql,
    })
}

fn value_bytes(serial_type: u64) -> Result<usize> {
    Ok(match serial_type {
        0 | 8 | 9 => 0,
        1..=4 => usize::try_from(serial_type).map_err(|_| malformed())?,
        5 => 6,
        6 | 7 => 8,
        10 | 11 => return Err(malformed()),
        _ => usize::try_from((serial_type - 12) / 2).map_err(|_| malformed())?,
    })
}

/// A number of one to nine bytes, high bits first, and where the next field begins.
fn varint(bytes: &[u8], at: usize) -> Result<(u64, usize)> {
    let mut value = 0u64;
    for (count, byte) in slice(bytes, at, 1)
        .map(|_| &bytes[at..])?
        .iter()
        .take(9)
        .enumerate()
    {
        if count == 8 {
            return Ok((value << 8 | u64::from(*byte), at + 9));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Ok((value, at + count + 1));
        }
    }
    Err(malformed())
}

fn be_u16(bytes: &[u8], at: usize) -> Result<u16> {
    let field = slice(bytes, at, 2)?;
    Ok(u16::from_be_bytes([field[0], field[1]]))
}

fn be_u32(bytes: &[u8], at: usize) -> Result<u32> {
    let field = slice(bytes, at, 4)?;
    Ok(u32::from_be_bytes([field[0], field[1], field[2], field[3]]))
}

fn slice(bytes: &[u8], at: usize, count: usize) -> Result<&[u8]> {
    at.checked_add(count)
        .and_then(|end| bytes.get(at..end))
        .ok_or_else(malformed)
}

fn malformed() -> Error {
    Error::Corrupt("the schema table is malformed".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_by_sqlite(sql: &str) -> (tempfile::TempDir, File, Header) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file.db");
        let sqlite = rusqlite::Connection::open(&path).expect("a file");
        sqlite.execute_batch(sql).expect("statements");
        drop(sqlite);
        let file = File::open(&path).expect("the file");
        let header = Header::read(&file).expect("a header").expect("not empty");
        (dir, file, header)
    }

    #[test]
    fn the_schema_of_a_large_file_is_read_as_sqlite_shows_it() {
        for page_bytes in [512, 4096, 65_536] {
            let mut sql = format!("PRAGMA page_size = {page_bytes}; BEGIN;");
            for table in 0..300 {
                let columns: Vec<String> =
                    (0..table % 97).map(|c| format!(", c{c} TEXT")).collect();
                sql += &format!("CREATE TABLE t{table} (id INTEGER PRIMARY KEY, u UNIQUE");
                sql += &columns.concat();
                sql += ");";
            }
            sql += "COMMIT";
            let (dir, file, header) = made_by_sqlite(&sql);
            assert_eq!(header.page_bytes, page_bytes);
            let rows = schema_rows(&file, &header).expect("the schema");
            let sqlite = rusqlite::Connection::open(dir.path().join("file.db")).expect("it");
            let mut statement = sqlite
                .prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid")
                .expect("a query");
            let expected: Vec<SchemaRow> = statement
                .query_map([], |row| {
                    Ok(SchemaRow {
                        kind: row.get(0)?,
                        name: row.get(1)?,
                        table: row.get(2)?,
                        sql: row.get(3)?,
                    })
                })
                .expect("rows")
                .map(|row| row.expect("a row"))
                .collect();
            assert_eq!(expected.len(), 600);
            assert_eq!(rows, expected);
        }
    }

    #[test]
    fn the_header_tells_what_the_engine_cannot_keep() {
        let (_dir, _file, header) = made_by_sqlite(
            "PRAGMA auto_vacuum = FULL; PRAGMA encoding = 'UTF-16be'; CREATE TABLE t (v)",
        );
        assert!(header.auto_vacuum);
        assert_eq!(header.encoding, 3);
        assert_eq!((header.write_version, header.schema_format), (1, 4));
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic_or_an_endless_walk() {
        let (dir, _file, header) = made_by_sqlite(
            "PRAGMA page_size = 512; CREATE TABLE a (x); CREATE TABLE b (y); CREATE TABLE c (z);
             CREATE TABLE d (z); CREATE TABLE e (z); CREATE TABLE f (z); CREATE TABLE g (z)",
        );
        let path = dir.path().join("file.db");
        let healthy = std::fs::read(&path).expect("the bytes");
        let file = File::options().read(true).write(true).open(&path);
        let file = file.expect("the file");
        for at in 100..healthy.len().min(1500) {
            for value in [0, 0x05, 0xff] {
                file.write_all_at(&[value], at as u64).expect("damaged");
                drop(schema_rows(&file, &header));
            }
            file.write_all_at(&healthy[at..=at], at as u64)
                .expect("mended");
        }
        assert_eq!(schema_rows(&file, &header).expect("the schema").len(), 7);
    }
}
