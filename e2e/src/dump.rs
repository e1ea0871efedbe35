//! Compares two database files with C SQLite, which shares no code with the engine.
//!
//! The convergence check is ours and reads through the engine; if both were wrong in the
//! same way it would not notice. This one trusts neither: it opens copies of two *stopped*
//! files with SQLite itself and walks both side by side: every row of every user table by
//! its rowid, with storage class and exact value; the schema, dormant triggers put back;
//! AUTOINCREMENT counters; `user_version` and `application_id`. Left out are `turso_cdc*`,
//! `__turso*` and `_tidegate_*`, and nothing else.
//!
//! Copies, because opening a file with SQLite recovers its write-ahead log, and what a
//! killed node left behind is evidence.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Rows, Statement};

/// Differences that are named; the others are only counted.
const NAMED_MAX: usize = 50;

/// What two files have and do not have in common.
#[derive(Debug, Default)]
pub struct Comparison {
    /// The first differences, each in one line.
    pub named: Vec<String>,
    /// All differences.
    pub differences: u64,
    /// Tables that were compared.
    pub tables: u64,
    /// Rows that were compared, those of one side only included.
    pub rows: u64,
    /// What SQLite's integrity check says of either file. Not a difference by itself: the
    /// two engines disagree on some index expressions, `lower()` of a blob for one.
    pub integrity: Vec<String>,
}

impl Comparison {
    /// True when nothing differs.
    pub fn is_equal(&self) -> bool {
        self.differences == 0
    }

    fn differ(&mut self, line: impl FnOnce() -> String) {
        self.differences += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(line());
        }
    }
}

/// Compares two files. Both must be closed.
pub fn compare(left: &Path, right: &Path) -> Result<Comparison> {
    let (left, right) = (Stopped::open(left)?, Stopped::open(right)?);
    let mut found = Comparison {
        integrity: left
            .integrity
            .iter()
            .chain(&right.integrity)
            .cloned()
            .collect(),
        ..Comparison::default()
    };
    compare_maps(&mut found, &left.facts()?, &right.facts()?);
    for (name, order) in left.table_names()? {
        if right.table_names()?.contains_key(&name) {
            found.tables += 1;
            let (here, there) = (left.scan(&name, &order)?, right.scan(&name, &order)?);
            compare_rows(&mut found, &name, here, there)
                .with_context(|| format!("comparing table {name}"))?;
        }
    }
    Ok(found)
}

/// Writes everything that takes part in a comparison, one line each.
pub fn write_dump(path: &Path, out: &mut impl Write) -> Result<()> {
    let file = Stopped::open(path)?;
    for (what, value) in file.facts()? {
        writeln!(out, "{what} = {value}")?;
    }
    for (name, order) in file.table_names()? {
        let mut scan = file.scan(&name, &order)?;
        let columns = scan.column_count();
        let mut rows = scan.raw_query();
        while let Some(row) = next_row(&mut rows, columns)? {
            writeln!(out, "{name} {row}")?;
        }
    }
    Ok(())
}

/// A copy of a stopped file, open in SQLite.
struct Stopped {
    connection: Connection,
    integrity: Vec<String>,
    _dir: tempfile::TempDir,
}

impl Stopped {
    fn open(path: &Path) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let copy = dir.path().join("copy.db");
        std::fs::copy(path, &copy).with_context(|| format!("cannot read {}", path.display()))?;
        let log = format!("{}-wal", path.display());
        if Path::new(&log).exists() {
            std::fs::copy(&log, dir.path().join("copy.db-wal"))?;
        }
        let connection = Connection::open(&copy)?;
        let mut file = Self {
            connection,
            integrity: Vec::new(),
            _dir: dir,
        };
        file.integrity = file.check(path)?;
        Ok(file)
    }

    fn check(&self, path: &Path) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        self.each("PRAGMA integrity_check(5)", |row| {
            if row[0] != "ok" {
                problems.push(format!("{}: {}", path.display(), row[0]));
            }
        })?;
        Ok(problems)
    }

    /// Everything but rows: what it is, and its value.
    fn facts(&self) -> Result<BTreeMap<String, String>> {
        let mut facts = BTreeMap::new();
        for pragma in ["user_version", "application_id"] {
            let sql = format!("PRAGMA {pragma}");
            let value: i64 = self.connection.query_row(&sql, [], |row| row.get(0))?;
            facts.insert(pragma.to_owned(), value.to_string());
        }
        self.each(
            "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE type <> 'trigger'",
            |row| {
                if is_user(&row[1]) && is_user(&row[2]) {
                    facts.insert(format!("{} {}", row[0], row[1]), squash(&row[3]));
                }
            },
        )?;
        for (place, (name, sql)) in (1..).zip(self.triggers()?) {
            facts.insert(format!("trigger {place:04} {name}"), squash(&sql));
        }
        if self.has_table("sqlite_sequence")? {
            self.each("SELECT name, quote(seq) FROM sqlite_sequence", |row| {
                if is_user(&row[0]) {
                    facts.insert(format!("sequence {}", row[0]), row[1].clone());
                }
            })?;
        }
        Ok(facts)
    }

    /// In creation order; on a replica from where they sleep.
    fn triggers(&self) -> Result<Vec<(String, String)>> {
        let mut triggers = Vec::new();
        let live = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY rowid";
        let dormant = "SELECT name, sql FROM _tidegate_dormant ORDER BY ordinal";
        self.each(live, |row| triggers.push((row[0].clone(), row[1].clone())))?;
        if self.has_table("_tidegate_dormant")? {
            let awake = triggers.len();
            self.each(dormant, |row| {
                triggers.push((row[0].clone(), row[1].clone()))
            })?;
            ensure!(
                awake == 0 || awake == triggers.len(),
                "triggers are awake beside dormant ones"
            );
        }
        Ok(triggers)
    }

    fn has_table(&self, name: &str) -> Result<bool> {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?";
        Ok(self.connection.query_row(sql, [name], |row| row.get(0))?)
    }

    /// User tables, each with a name for its rowid.
    fn table_names(&self) -> Result<BTreeMap<String, String>> {
        let mut tables = BTreeMap::new();
        let mut names = Vec::new();
        self.each(
            "SELECT name FROM sqlite_schema WHERE type = 'table'",
            |row| {
                names.push(row[0].clone());
            },
        )?;
        for name in names
            .into_iter()
            .filter(|n| is_user(n) && !n.starts_with("sqlite_"))
        {
            let alias = self.rowid_alias(&name)?;
            tables.insert(name, alias);
        }
        Ok(tables)
    }

    fn rowid_alias(&self, table: &str) -> Result<String> {
        let mut columns = Vec::new();
        let mut key = Vec::new();
        let sql = "SELECT name, pk, upper(type) FROM pragma_table_info(?)";
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([table])?;
        while let Some(row) = rows.next()? {
            let (name, pk, of_type): (String, i64, String) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            if pk > 0 {
                key.push((name.clone(), of_type));
            }
            columns.push(name.to_lowercase());
        }
        let free = ["rowid", "_rowid_", "oid"];
        let free = free.into_iter().find(|a| !columns.iter().any(|c| c == a));
        match (free, key.as_slice()) {
            (Some(alias), _) => Ok(alias.to_owned()),
            (None, [(name, of_type)]) if of_type == "INTEGER" => Ok(quote(name)),
            _ => anyhow::bail!("table {table} has no name for its rowid"),
        }
    }

    fn scan(&self, table: &str, rowid: &str) -> Result<Statement<'_>> {
        let sql = format!(
            "SELECT {rowid}, * FROM {} NOT INDEXED ORDER BY {rowid}",
            quote(table)
        );
        Ok(self.connection.prepare(&sql)?)
    }

    /// All columns as text; NULL as an empty one.
    fn each(&self, sql: &str, mut each: impl FnMut(&[String])) -> Result<()> {
        let mut statement = self.connection.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let texts: rusqlite::Result<Vec<Option<String>>> =
                (0..columns).map(|i| row.get(i)).collect();
            let texts: Vec<String> = texts?.into_iter().map(Option::unwrap_or_default).collect();
            each(&texts);
        }
        Ok(())
    }
}

/// A row's identity and everything in it, ready to be compared and to be printed.
#[derive(PartialEq)]
struct DumpedRow {
    rowid: i64,
    columns: Vec<String>,
}

impl std::fmt::Display for DumpedRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}] {}", self.rowid, self.columns.join(" | "))
    }
}

fn compare_maps(
    found: &mut Comparison,
    left: &BTreeMap<String, String>,
    right: &BTreeMap<String, String>,
) {
    let keys: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    for key in keys {
        let (here, there) = (left.get(key), right.get(key));
        if here != there {
            let say = |value: Option<&String>| value.map_or("absent", |v| v).to_owned();
            found.differ(|| format!("{key}: left {}, right {}", say(here), say(there)));
        }
    }
}

/// Both sides come in the order of rowids, so one pass is enough.
fn compare_rows(
    found: &mut Comparison,
    table: &str,
    mut left: Statement<'_>,
    mut right: Statement<'_>,
) -> Result<()> {
    let names = |s: &Statement<'_>| -> Vec<String> {
        s.column_names().into_iter().map(str::to_owned).collect()
    };
    if names(&left) != names(&right) {
        found.differ(|| {
            format!(
                "{table}: columns {:?} and {:?}",
                names(&left),
                names(&right)
            )
        });
        return Ok(());
    }
    let columns = left.column_count();
    let (mut lefts, mut rights) = (left.raw_query(), right.raw_query());
    let mut here = next_row(&mut lefts, columns)?;
    let mut there = next_row(&mut rights, columns)?;
    loop {
        let order = match (&here, &there) {
            (None, None) => return Ok(()),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(l), Some(r)) => l.rowid.cmp(&r.rowid),
        };
        found.rows += 1;
        match order {
            std::cmp::Ordering::Less => name_lone(found, table, "left", here.as_ref()),
            std::cmp::Ordering::Greater => name_lone(found, table, "right", there.as_ref()),
            std::cmp::Ordering::Equal if here != there => {
                name_pair(found, table, here.as_ref(), there.as_ref());
            }
            std::cmp::Ordering::Equal => {}
        }
        if order.is_le() {
            here = next_row(&mut lefts, columns)?;
        }
        if order.is_ge() {
            there = next_row(&mut rights, columns)?;
        }
    }
}

fn name_lone(found: &mut Comparison, table: &str, side: &str, row: Option<&DumpedRow>) {
    if let Some(row) = row {
        found.differ(|| shorten(&format!("{table}: only {side} has {row}")));
    }
}

fn name_pair(
    found: &mut Comparison,
    table: &str,
    left: Option<&DumpedRow>,
    right: Option<&DumpedRow>,
) {
    if let (Some(left), Some(right)) = (left, right) {
        found.differ(|| {
            let (l, r) = (left.to_string(), right.to_string());
            format!("{table}: left {}, right {}", shorten(&l), shorten(&r))
        });
    }
}

fn next_row(rows: &mut Rows<'_>, columns: usize) -> Result<Option<DumpedRow>> {
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let mut dumped = DumpedRow {
        rowid: row.get(0)?,
        columns: Vec::with_capacity(columns - 1),
    };
    for i in 1..columns {
        dumped.columns.push(exactly(row.get_ref(i)?));
    }
    Ok(Some(dumped))
}

/// Storage class and value, without loss: reals by their bits too, text and blobs by all
/// their bytes (SQL's `quote()` ends a text at its first NUL).
fn exactly(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(i) => format!("integer {i}"),
        ValueRef::Real(r) => format!("real {r:?} ({:016x})", r.to_bits()),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => format!("text {text:?}"),
            Err(_) => format!("text x'{}'", hex(bytes)),
        },
        ValueRef::Blob(bytes) => format!("blob x'{}'", hex(bytes)),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String takes everything");
    }
    text
}

fn shorten(line: &str) -> String {
    const SHOWN_CHARS: usize = 300;
    match line.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}… ({} bytes)", &line[..end], line.len()),
        None => line.to_owned(),
    }
}

/// A text without the white space that is not inside quotes: the engine lays out what it
/// rewrites in its own way.
fn squash(sql: &str) -> String {
    let mut squashed = String::with_capacity(sql.len());
    let mut inside = None;
    for c in sql.chars() {
        match inside {
            Some(end) if c == end => inside = None,
            Some(_) => {}
            None if c == '[' => inside = Some(']'),
            None if "'\"`".contains(c) => inside = Some(c),
            None if c.is_whitespace() => {
                if !squashed.ends_with(' ') {
                    squashed.push(' ');
                }
                continue;
            }
            None => {}
        }
        squashed.push(c);
    }
    squashed
}

fn is_user(name: &str) -> bool {
    let lower = name.to_lowercase();
    !["turso_cdc", "__turso", "_tidegate_"]
        .iter()
        .any(|prefix| lower.starts_with(prefix))
}

fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
