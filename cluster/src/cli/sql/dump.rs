//! `.dump`: a database as statements, read in one transaction.

use tidegate_engine::Value;
use tidegate_engine::names::quote;

use super::client::{Answer, Client};
use super::format::literal;
use super::{Failure, failure, print};

/// Rows read at a time.
const PAGE_ROWS: usize = 500;

/// Prints the schema and rows of one table or of all.
pub async fn dump(client: &mut Client, table: Option<&str>) -> Result<(), Failure> {
    if client.in_transaction() {
        return Err(Failure::usage(
            ".dump needs a transaction of its own: COMMIT or ROLLBACK first",
        ));
    }
    run(client, "BEGIN TRANSACTION READONLY").await?;
    let dumped = dump_inside(client, table).await;
    let ended = run(client, "COMMIT").await;
    dumped.and(ended.map(drop))
}

async fn dump_inside(client: &mut Client, table: Option<&str>) -> Result<(), Failure> {
    print("PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\n")?;
    let only = match table {
        Some(table) => format!(" AND lower(tbl_name) = lower({})", literal(&table.into())),
        None => String::new(),
    };
    let objects = run(
        client,
        &format!(
            "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL \
             AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'{only} ORDER BY rowid"
        ),
    )
    .await?;
    let text = |value: &Value| value.as_text().unwrap_or_default().to_owned();
    for row in objects.rows.iter().filter(|row| text(&row[0]) == "table") {
        print(&format!("{};\n", text(&row[2])))?;
        rows(client, &text(&row[1])).await?;
    }
    // After the rows, so that indexes are built once and triggers do not fire.
    for row in objects.rows.iter().filter(|row| text(&row[0]) != "table") {
        print(&format!("{};\n", text(&row[2])))?;
    }
    print("COMMIT;\n")
}

/// Pages by row id: OFFSET would read everything again for each page.
async fn rows(client: &mut Client, table: &str) -> Result<(), Failure> {
    let quoted = quote(table);
    let mut after = String::new();
    loop {
        let sql = format!(
            "SELECT rowid AS \"\u{1}key\", * FROM {quoted}{after} ORDER BY rowid LIMIT {PAGE_ROWS}"
        );
        let page = run(client, &sql).await?;
        let mut text = String::new();
        for row in &page.rows {
            let values: Vec<String> = row[1..].iter().map(literal).collect();
            text += &format!("INSERT INTO {quoted} VALUES({});\n", values.join(","));
        }
        print(&text)?;
        match page.rows.last() {
            Some(last) if page.rows.len() == PAGE_ROWS => {
                after = format!(" WHERE rowid > {}", literal(&last[0]));
            }
            _ => return Ok(()),
        }
    }
}

async fn run(client: &mut Client, sql: &str) -> Result<Answer, Failure> {
    client.execute(sql).await.map_err(failure)
}
