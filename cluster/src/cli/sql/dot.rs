//! Commands of the shell that start with a dot.

use clap::ValueEnum;

use super::format::{Mode, literal};
use super::{Failure, Next, Shell, dump, failure, print};

const HELP: &str = "\
.tables [PATTERN]     tables and views; PATTERN as in LIKE
.schema [TABLE]       the text that made them
.indexes [TABLE]      indexes
.dump [TABLE]         everything as statements
.read FILE            runs statements from a file
.mode MODE            table, json, csv or line
.timer on|off         shows how long statements take
.quit                 ends; so does Ctrl-D
";

impl Shell {
    /// Runs one command.
    pub(super) async fn dot(&mut self, line: &str) -> Result<Next, Failure> {
        let mut words = line.split_whitespace();
        let command = words.next().unwrap_or_default();
        let argument = words.next();
        match (command, argument) {
            (".quit" | ".exit", _) => return Ok(Next::Quit),
            (".help", _) => print(HELP)?,
            (".tables", pattern) => self.tables(pattern).await?,
            (".schema", table) => self.schema("", table).await?,
            (".indexes" | ".indices", table) => self.schema(" AND type = 'index'", table).await?,
            (".dump", table) => dump::dump(&mut self.client, table).await?,
            (".read", Some(file)) => {
                let text = std::fs::read_to_string(file)
                    .map_err(|e| Failure::usage(format!("{file}: {e}")))?;
                Box::pin(self.script(&text)).await?;
            }
            (".mode", Some(mode)) => {
                self.mode = Mode::from_str(mode, true)
                    .map_err(|_| Failure::usage("the modes are table, json, csv and line"))?;
            }
            (".timer" | ".timing", Some(on @ ("on" | "off"))) => self.timing = on == "on",
            _ => {
                let message = format!("{line}: no such command, or its argument is missing; .help");
                return Err(Failure::usage(message));
            }
        }
        Ok(Next::Continue)
    }

    async fn tables(&mut self, pattern: Option<&str>) -> Result<(), Failure> {
        let pattern = literal(&pattern.unwrap_or("%").into());
        let sql = format!(
            "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') \
             AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND name LIKE {pattern} ORDER BY name"
        );
        self.lines(&sql, "").await
    }

    async fn schema(&mut self, and: &str, table: Option<&str>) -> Result<(), Failure> {
        let table = match table {
            Some(table) => format!(" AND lower(tbl_name) = lower({})", literal(&table.into())),
            None => String::new(),
        };
        let sql = format!(
            "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL \
             AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'{and}{table} ORDER BY rowid"
        );
        self.lines(&sql, ";").await
    }

    /// Prints the first column, one value a line.
    async fn lines(&mut self, sql: &str, end: &str) -> Result<(), Failure> {
        let answer = self.client.execute(sql).await.map_err(failure)?;
        let lines = answer.rows.iter().filter_map(|row| row.first()?.as_text());
        let text: String = lines.map(|line| format!("{line}{end}\n")).collect();
        print(&text)
    }
}
