//! The operations of the mixed load.

use serde_json::{Value, json};

use super::{Expected, Op, Way};
use crate::client::{blob, integer, text};
use crate::rng::Rng;
use crate::stream::Statement;

/// Rows of the imported tables that are changed by number.
const TRACKS: i64 = 3_503;
const CUSTOMERS: i64 = 59;
const ALBUMS: i64 = 347;
const PLAYLISTS: i64 = 18;
const GENRES: i64 = 25;
const INVOICE_LINES: i64 = 2_240;
/// Longest picture, in bytes; some leave their page.
const PICTURE_BYTES_MAX: u64 = 20_000;
/// Added to a track's number by the operation that changes keys.
const KEY_SHIFT: i64 = 100_000;

const UNIQUE: &str = "SQLITE_CONSTRAINT_UNIQUE";
const FOREIGN_KEY: &str = "SQLITE_CONSTRAINT_FOREIGNKEY";
const NOT_NULL: &str = "SQLITE_CONSTRAINT_NOTNULL";

/// What the load needs beside the tables of Chinook.
pub fn setup() -> Vec<String> {
    [
        "CREATE TABLE Ledger (Op INTEGER PRIMARY KEY, Client INTEGER NOT NULL, Note TEXT)",
        "CREATE TABLE Rating (TrackId INTEGER PRIMARY KEY, Stars REAL, Votes INTEGER NOT NULL)",
        "CREATE TABLE Cover (AlbumId INTEGER PRIMARY KEY REFERENCES Album (AlbumId), Picture BLOB)",
        "CREATE TABLE PriceLog (Id INTEGER PRIMARY KEY AUTOINCREMENT, TrackId, Old, New)",
        "CREATE TRIGGER PriceChanged AFTER UPDATE OF UnitPrice ON Track BEGIN \
           INSERT INTO PriceLog (TrackId, Old, New) \
             VALUES (new.TrackId, old.UnitPrice, new.UnitPrice); END",
        "CREATE VIEW Sales AS SELECT CustomerId, count(*) AS Invoices, sum(Total) AS Total \
           FROM Invoice GROUP BY CustomerId",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The next operation of a client.
pub(super) fn draw(rng: &mut Rng, id: i64, client: usize) -> Op {
    let mut op = Op {
        id,
        way: Way::Single,
        statements: Vec::new(),
        expected: Expected::Success,
        in_ledger: false,
    };
    match rng.below(100) {
        0..15 => note(&mut op, rng, client),
        15..33 => op.statements.push(read(rng)),
        33..45 => op.statements.push(change_track(rng)),
        45..51 => op.statements.push(add_customer(rng, id)),
        51..61 => change_playlist(&mut op, rng),
        61..72 => op.statements.push(rate(rng)),
        72..79 => sell(&mut op, rng, client),
        79..85 => move_house(&mut op, rng, client),
        85..89 => op.statements.push(strike_line(rng)),
        89..93 => violate(&mut op, rng),
        93..96 => op.statements.push(picture(rng)),
        96 => op.statements.push(change_many(rng)),
        97 => change_key(&mut op, rng),
        _ => rebuild(&mut op, rng, client),
    }
    op
}

fn note(op: &mut Op, rng: &mut Rng, client: usize) {
    let notes = [
        "",
        "plain",
        "Ærøskøbing",
        "four bytes 😀",
        "quote ' and \" \\",
        "tab\tand\nline",
    ];
    let note = *rng.choose(&notes).expect("there are notes");
    op.statements.push(statement(
        "INSERT INTO Ledger (Op, Client, Note) VALUES (?, ?, ?)",
        [integer(op.id), integer(client as i64), text(note)],
    ));
    op.in_ledger = true;
}

fn read(rng: &mut Rng) -> Statement {
    match rng.below(3) {
        0 => statement(
            "SELECT t.Name, a.Title, r.Name FROM Track t JOIN Album a USING (AlbumId) \
             JOIN Artist r USING (ArtistId) WHERE t.TrackId = ?",
            [number(rng, TRACKS)],
        ),
        1 => statement(
            "SELECT * FROM Sales WHERE CustomerId = ?",
            [number(rng, CUSTOMERS)],
        ),
        _ => statement(
            "SELECT count(*), min(t.Milliseconds) FROM PlaylistTrack p \
             JOIN Track t USING (TrackId) WHERE p.PlaylistId = ?",
            [number(rng, PLAYLISTS)],
        ),
    }
}

/// Fires a trigger when it is the price.
fn change_track(rng: &mut Rng) -> Statement {
    match rng.below(3) {
        0 => statement(
            "UPDATE Track SET Composer = ? WHERE TrackId = ?",
            [
                text(&format!("Composer № {}", rng.below(500))),
                number(rng, TRACKS),
            ],
        ),
        1 => statement(
            "UPDATE Track SET UnitPrice = ? WHERE TrackId = ?",
            [
                real(rng.integer_below(400) as f64 / 100.0),
                number(rng, TRACKS),
            ],
        ),
        _ => statement(
            "UPDATE Track SET Composer = NULL, Bytes = Bytes + ? WHERE TrackId = ?",
            [number(rng, 9), number(rng, TRACKS)],
        ),
    }
}

fn add_customer(rng: &mut Rng, id: i64) -> Statement {
    statement(
        "INSERT INTO Customer (FirstName, LastName, Email, City, SupportRepId) \
         VALUES (?, ?, ?, ?, 3) RETURNING CustomerId",
        [
            text("Zoë"),
            text(&format!("Nº {}", rng.below(1_000))),
            text(&format!("client{id}@example.org")),
            json!({"type": "null"}),
        ],
    )
}

fn change_playlist(op: &mut Op, rng: &mut Rng) {
    let keys = [number(rng, PLAYLISTS), number(rng, TRACKS)];
    let sql = match rng.below(3) {
        0 => "DELETE FROM PlaylistTrack WHERE PlaylistId = ? AND TrackId = ?",
        1 => {
            op.expected = Expected::Either(UNIQUE);
            "INSERT INTO PlaylistTrack (PlaylistId, TrackId) VALUES (?, ?)"
        }
        _ => "INSERT INTO PlaylistTrack (PlaylistId, TrackId) VALUES (?, ?) ON CONFLICT DO NOTHING",
    };
    op.statements.push(statement(sql, keys));
}

fn rate(rng: &mut Rng) -> Statement {
    let values = [
        number(rng, TRACKS / 8),
        real(rng.integer_below(11) as f64 / 2.0),
    ];
    let sql = if rng.percent(25) {
        "INSERT OR REPLACE INTO Rating (TrackId, Stars, Votes) VALUES (?, ?, 1)"
    } else {
        "INSERT INTO Rating (TrackId, Stars, Votes) VALUES (?, ?, 1) ON CONFLICT (TrackId) \
         DO UPDATE SET Stars = (Stars * Votes + excluded.Stars) / (Votes + 1), Votes = Votes + 1"
    };
    statement(sql, values)
}

/// An invoice with its lines and their sum, as one transaction in one request.
fn sell(op: &mut Op, rng: &mut Rng, client: usize) {
    op.way = Way::Batch;
    op.statements.push(statement(
        "INSERT INTO Invoice (CustomerId, InvoiceDate, BillingCountry, Total) \
         VALUES (?, '2026-01-01 00:00:00', 'Ísland', 0)",
        [number(rng, CUSTOMERS)],
    ));
    for _ in 0..=rng.below(3) {
        op.statements.push(statement(
            "INSERT INTO InvoiceLine (InvoiceId, TrackId, UnitPrice, Quantity) \
             SELECT (SELECT max(InvoiceId) FROM Invoice), TrackId, UnitPrice, ? \
             FROM Track WHERE TrackId = ?",
            [number(rng, 5), number(rng, TRACKS)],
        ));
    }
    op.statements.push(statement(
        "UPDATE Invoice SET Total = (SELECT coalesce(sum(l.UnitPrice * l.Quantity), 0) \
           FROM InvoiceLine l WHERE l.InvoiceId = (SELECT max(InvoiceId) FROM Invoice)) \
         WHERE InvoiceId = (SELECT max(InvoiceId) FROM Invoice)",
        [],
    ));
    note(op, rng, client);
}

/// A transaction whose client thinks between its statements.
fn move_house(op: &mut Op, rng: &mut Rng, client: usize) {
    op.way = if rng.percent(25) {
        Way::Rollback
    } else {
        Way::Commit
    };
    for _ in 0..2 {
        op.statements.push(statement(
            "UPDATE Customer SET City = ?, Phone = NULL WHERE CustomerId = ?",
            [
                text(&format!("Town {}", rng.below(99))),
                number(rng, CUSTOMERS),
            ],
        ));
    }
    op.statements
        .push(statement("SELECT count(DISTINCT City) FROM Customer", []));
    note(op, rng, client);
}

fn strike_line(rng: &mut Rng) -> Statement {
    statement(
        "DELETE FROM InvoiceLine WHERE InvoiceLineId = ?",
        [number(rng, INVOICE_LINES)],
    )
}

fn violate(op: &mut Op, rng: &mut Rng) {
    let (sql, values, code) = match rng.below(3) {
        0 => (
            "INSERT INTO Album (Title, ArtistId) VALUES (?, -1)",
            [text("by nobody")],
            FOREIGN_KEY,
        ),
        1 => (
            "UPDATE Track SET Name = NULL WHERE TrackId = ?",
            [number(rng, TRACKS)],
            NOT_NULL,
        ),
        _ => (
            "INSERT INTO Artist (ArtistId, Name) VALUES (?, 'twice')",
            [number(rng, 100)],
            UNIQUE,
        ),
    };
    op.expected = Expected::Error(code);
    op.statements.push(statement(sql, values));
}

fn picture(rng: &mut Rng) -> Statement {
    let len = usize::try_from(rng.below(PICTURE_BYTES_MAX)).expect("a short picture");
    statement(
        "INSERT INTO Cover (AlbumId, Picture) VALUES (?, ?) \
         ON CONFLICT (AlbumId) DO UPDATE SET Picture = excluded.Picture",
        [number(rng, ALBUMS), blob(&rng.bytes(len))],
    )
}

fn change_many(rng: &mut Rng) -> Statement {
    statement(
        "UPDATE Track SET Bytes = Bytes + 1 WHERE GenreId = ?",
        [number(rng, GENRES)],
    )
}

fn change_key(op: &mut Op, rng: &mut Rng) {
    op.expected = Expected::Either(UNIQUE);
    op.statements.push(statement(
        "UPDATE Rating SET TrackId = TrackId + ? WHERE TrackId = ?",
        [integer(KEY_SHIFT), number(rng, TRACKS / 8)],
    ));
}

/// A table made, changed and sometimes dropped again in one transaction.
fn rebuild(op: &mut Op, rng: &mut Rng, client: usize) {
    let name = format!("Scratch{client}x{}", rng.below(4));
    op.way = Way::Batch;
    let mut sql = vec![
        format!("DROP TABLE IF EXISTS {name}"),
        format!("CREATE TABLE {name} (Id INTEGER PRIMARY KEY, Word TEXT)"),
        format!("INSERT INTO {name} (Word) SELECT Name FROM Genre"),
        format!(
            "ALTER TABLE {name} ADD COLUMN Late INTEGER DEFAULT {}",
            rng.below(9)
        ),
        format!("CREATE INDEX {name}Word ON {name} (Word)"),
        format!("UPDATE {name} SET Late = Id WHERE Id % 2 = 0"),
    ];
    if rng.percent(30) {
        sql.push(format!("DROP TABLE {name}"));
    }
    op.statements = sql.into_iter().map(|sql| (sql, Vec::new())).collect();
    note(op, rng, client);
}

fn statement<const N: usize>(sql: &str, values: [Value; N]) -> Statement {
    (sql.to_owned(), values.to_vec())
}

/// A number in `1..=last`.
fn number(rng: &mut Rng, last: i64) -> Value {
    integer(rng.integer_below(last) + 1)
}

fn real(value: f64) -> Value {
    json!({"type": "float", "value": value})
}
