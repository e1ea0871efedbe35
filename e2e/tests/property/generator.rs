//! Random statements over whatever schema there is at the moment.
//!
//! The generator keeps no picture of its own that could drift: after each change of the
//! schema it is told what the database says. Values come from a small range, so that keys
//! collide, constraints fail, foreign keys miss and upserts hit.

use tidegate_e2e::rng::Rng;

/// What the database holds, as far as the generator cares.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    pub tables: Vec<Table>,
    pub indexes: Vec<String>,
    pub triggers: Vec<String>,
    pub views: Vec<String>,
}

/// A table and its columns.
#[derive(Debug, Clone)]
pub struct Table {
    pub name: String,
    pub columns: Vec<Column>,
}

/// A column.
#[derive(Debug, Clone)]
pub struct Column {
    pub name: String,
    pub decltype: String,
    pub in_key: bool,
}

/// A generator of statements; the same seed and the same schemas give the same statements.
pub struct Generator {
    rng: Rng,
    named: u32,
    savepoints: u32,
}

/// Tables beyond this number are dropped again.
const TABLES_MAX: usize = 7;
/// Columns beyond this number are dropped again.
const COLUMNS_MAX: usize = 8;

impl Generator {
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            named: 0,
            savepoints: 0,
        }
    }

    /// Chances of the test itself: when to ship, when to compare.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.rng.percent(percent)
    }

    /// The statements a database begins with.
    pub fn beginning(&mut self) -> Vec<String> {
        let mut statements = vec!["CREATE TABLE lg(id INTEGER PRIMARY KEY, m TEXT, n)".to_owned()];
        for _ in 0..=self.rng.below(3) {
            statements.push(self.create_table(&Schema::default()));
        }
        statements
    }

    /// The next statement.
    pub fn statement(&mut self, schema: &Schema, in_transaction: bool) -> String {
        if schema.tables.len() < 2 {
            return self.create_table(schema);
        }
        match self.rng.below(100) {
            0..28 => self.insert(schema),
            28..36 => self.upsert(schema),
            36..42 => self.replace(schema),
            42..62 => self.update(schema),
            62..71 => self.delete(schema),
            71..74 => self.insert_select(schema),
            74..86 => self.transaction_control(in_transaction),
            86..98 => self.schema_change(schema),
            _ => self.mistake(schema),
        }
    }

    fn insert(&mut self, schema: &Schema) -> String {
        let table = self.table(schema);
        let verb = self.pick(&[
            "INSERT",
            "INSERT",
            "INSERT",
            "INSERT OR IGNORE",
            "INSERT OR ABORT",
            "INSERT OR FAIL",
        ]);
        let columns = self.some_columns(table);
        let rows: Vec<String> = (0..=self.rng.below(3))
            .map(|_| format!("({})", self.values_for(table, &columns)))
            .collect();
        let returning = if self.rng.percent(10) {
            " RETURNING *"
        } else {
            ""
        };
        format!(
            "{verb} INTO {}({}) VALUES {}{returning}",
            quote(&table.name),
            list(&columns),
            rows.join(", ")
        )
    }

    fn upsert(&mut self, schema: &Schema) -> String {
        let table = self.table(schema);
        let columns = self.some_columns(table);
        let values = self.values_for(table, &columns);
        let target = match table.columns.iter().find(|c| c.in_key) {
            Some(key) if self.rng.percent(60) => format!("({})", quote(&key.name)),
            _ => String::new(),
        };
        let action = if target.is_empty() || self.rng.percent(30) {
            "NOTHING".to_owned()
        } else {
            let set = self.column(table).name.clone();
            format!("UPDATE SET {} = {}", quote(&set), self.value())
        };
        format!(
            "INSERT INTO {}({}) VALUES ({values}) ON CONFLICT{target} DO {action}",
            quote(&table.name),
            list(&columns)
        )
    }

    fn replace(&mut self, schema: &Schema) -> String {
        let table = self.table(schema);
        let columns = self.some_columns(table);
        let verb = self.pick(&["REPLACE", "INSERT OR REPLACE"]);
        format!(
            "{verb} INTO {}({}) VALUES ({})",
            quote(&table.name),
            list(&columns),
            self.values_for(table, &columns)
        )
    }

    fn update(&mut self, schema: &Schema) -> String {
        let table = self.table(schema);
        let verb = self.pick(&["UPDATE", "UPDATE", "UPDATE", "UPDATE OR IGNORE"]);
        let column = self.column(table).clone();
        let new = if self.rng.percent(40) {
            let other = self.column(table).name.clone();
            match self.rng.below(3) {
                0 => format!("{} + 1", quote(&other)),
                1 => format!("{} || 'x'", quote(&other)),
                _ => quote(&other),
            }
        } else {
            self.value_for(&column)
        };
        format!(
            "{verb} {} SET {} = {new}{}",
            quote(&table.name),
            quote(&column.name),
            self.condition(table)
        )
    }

    fn delete(&mut self, schema: &Schema) -> String {
        let table = self.table(schema);
        format!(
            "DELETE FROM {}{}",
            quote(&table.name),
            self.condition(table)
        )
    }

    fn insert_select(&mut self, schema: &Schema) -> String {
        let (into, from) = (self.table(schema), self.table(schema));
        let column = self.column(into).name.clone();
        let read = self.column(from).name.clone();
        format!(
            "INSERT OR IGNORE INTO {}({}) SELECT {} FROM {} ORDER BY rowid LIMIT {}",
            quote(&into.name),
            quote(&column),
            quote(&read),
            quote(&from.name),
            self.rng.below(4)
        )
    }

    fn transaction_control(&mut self, in_transaction: bool) -> String {
        if !in_transaction {
            self.savepoints = 0;
            return self
                .pick(&["BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
                .to_owned();
        }
        match self.rng.below(10) {
            0..4 => "COMMIT".to_owned(),
            4..6 => "ROLLBACK".to_owned(),
            6 | 7 => {
                self.savepoints += 1;
                format!("SAVEPOINT s{}", self.savepoints)
            }
            _ if self.savepoints == 0 => "COMMIT".to_owned(),
            8 => format!("ROLLBACK TO s{}", self.savepoints),
            _ => {
                self.savepoints -= 1;
                format!("RELEASE s{}", self.savepoints + 1)
            }
        }
    }

    fn schema_change(&mut self, schema: &Schema) -> String {
        if schema.tables.len() > TABLES_MAX {
            return self.drop_table(schema);
        }
        match self.rng.below(20) {
            0..3 => self.create_table(schema),
            3 => self.drop_table(schema),
            4..7 => self.create_index(schema),
            7 => self.drop_one("INDEX", &schema.indexes),
            8..10 => self.create_trigger(schema),
            10 => self.drop_one("TRIGGER", &schema.triggers),
            11 => self.create_view(schema),
            12 => self.drop_one("VIEW", &schema.views),
            13..15 => self.add_column(schema),
            15 => self.drop_column(schema),
            16 => self.rename_column(schema),
            17 => self.rename_table(schema),
            18 => self.create_table_as(schema),
            _ => format!("PRAGMA user_version = {}", self.rng.below(1_000)),
        }
    }

    fn create_table(&mut self, schema: &Schema) -> String {
        let name = self.name("t");
        let mut columns = vec![
            self.pick(&[
                "id INTEGER PRIMARY KEY",
                "id INTEGER PRIMARY KEY AUTOINCREMENT",
                "id INTEGER PRIMARY KEY",
                "k TEXT PRIMARY KEY",
                "k INT PRIMARY KEY",
                "plain",
            ])
            .to_owned(),
        ];
        for n in 0..=self.rng.below(3) {
            let kind = self.pick(&["", " INTEGER", " TEXT", " REAL", " BLOB", " NUMERIC"]);
            let rule = self.pick(&[
                "",
                "",
                "",
                " UNIQUE",
                " DEFAULT 7",
                " NOT NULL DEFAULT 'd'",
                " COLLATE NOCASE",
                " UNIQUE COLLATE NOCASE",
                " CHECK (length(#) < 4)",
            ]);
            let column = format!("c{n}");
            columns.push(format!("{column}{kind}{}", rule.replace('#', &column)));
        }
        if self.rng.percent(25)
            && let Some(parent) = self.rng.choose(&schema.tables)
            && let Some(key) = parent.columns.iter().find(|c| c.name == "id")
        {
            let action = self.pick(&[
                "ON DELETE CASCADE ON UPDATE CASCADE",
                "ON DELETE SET NULL ON UPDATE SET NULL",
                "ON DELETE SET DEFAULT",
                "ON UPDATE RESTRICT",
                "",
            ]);
            columns.push(format!(
                "p REFERENCES {}({}) {action}",
                quote(&parent.name),
                quote(&key.name)
            ));
        }
        if self.rng.percent(10) {
            columns.push("UNIQUE (c0)".to_owned());
        }
        format!("CREATE TABLE {name}({})", columns.join(", "))
    }

    fn create_table_as(&mut self, schema: &Schema) -> String {
        let from = self.table(schema);
        let column = self.column(from).name.clone();
        format!(
            "CREATE TABLE {} AS SELECT {} AS a, 1 AS b FROM {} ORDER BY rowid",
            self.name("a"),
            quote(&column),
            quote(&from.name)
        )
    }

    fn drop_table(&mut self, schema: &Schema) -> String {
        let droppable: Vec<&Table> = schema.tables.iter().filter(|t| t.name != "lg").collect();
        match self.rng.choose(&droppable) {
            Some(table) => format!("DROP TABLE {}", quote(&table.name)),
            None => "DROP TABLE IF EXISTS nobody".to_owned(),
        }
    }

    fn drop_one(&mut self, kind: &str, names: &[String]) -> String {
        match self.rng.choose(names) {
            Some(name) => format!("DROP {kind} {}", quote(name)),
            None => format!("DROP {kind} IF EXISTS nobody"),
        }
    }

    fn create_index(&mut self, schema: &Schema) -> String {
        let table = self.table(schema);
        let column = quote(&self.column(table).name.clone());
        let unique = if self.rng.percent(30) { "UNIQUE " } else { "" };
        let (term, filter) = match self.rng.below(5) {
            0 => (format!("lower({column})"), String::new()),
            1 => (format!("{column} COLLATE NOCASE DESC"), String::new()),
            2 => (column.clone(), format!(" WHERE {column} IS NOT NULL")),
            3 => (column.clone(), format!(" WHERE {column} > 3")),
            _ => (column, String::new()),
        };
        format!(
            "CREATE {unique}INDEX {} ON {}({term}){filter}",
            self.name("i"),
            quote(&table.name)
        )
    }

    /// One trigger for each table and event: two would fire in an order that SQLite leaves
    /// open.
    fn create_trigger(&mut self, schema: &Schema) -> String {
        let table = self.table(schema);
        let other = self.table(schema);
        let event = self.pick(&["INSERT", "UPDATE", "DELETE"]);
        let row = if event == "DELETE" { "old" } else { "new" };
        let name = format!("tr_{}_{}", table.name, event.to_lowercase());
        if schema.triggers.contains(&name) || table.name == "lg" {
            return format!("DROP TRIGGER {}", quote(&name));
        }
        let column = quote(&self.column(other).name.clone());
        let to = quote(&other.name);
        let own = quote(&self.column(table).name.clone());
        let value = self.value();
        let body = match self.rng.below(7) {
            0 | 1 => format!("INSERT INTO lg(m, n) VALUES ('{event}', {row}.{own});"),
            2 if event == "INSERT" => format!(
                "UPDATE {} SET {own} = {value} WHERE rowid = new.rowid;",
                quote(&table.name)
            ),
            3 if other.name != table.name => {
                format!("DELETE FROM {to} WHERE rowid = {row}.rowid;")
            }
            4 if other.name != table.name => {
                format!("UPDATE OR IGNORE {to} SET {column} = {value} WHERE rowid = {row}.rowid;")
            }
            5 if other.name != table.name => {
                format!("INSERT OR IGNORE INTO {to}({column}) VALUES ({row}.{own});")
            }
            _ => format!(
                "INSERT INTO lg(m, n) VALUES ('two', 1); DELETE FROM lg WHERE n = {row}.{own};"
            ),
        };
        let when = if self.rng.percent(20) {
            format!(" WHEN {row}.{own} IS NOT NULL")
        } else {
            String::new()
        };
        format!(
            "CREATE TRIGGER {} AFTER {event} ON {}{when} BEGIN {body} END",
            quote(&name),
            quote(&table.name)
        )
    }

    fn create_view(&mut self, schema: &Schema) -> String {
        let table = self.table(schema);
        let column = self.column(table).name.clone();
        format!(
            "CREATE VIEW {} AS SELECT {} AS x FROM {}",
            self.name("v"),
            quote(&column),
            quote(&table.name)
        )
    }

    fn add_column(&mut self, schema: &Schema) -> String {
        let table = self.table(schema);
        if table.columns.len() >= COLUMNS_MAX {
            return self.drop_column(schema);
        }
        let rule = self.pick(&[
            "",
            " DEFAULT 5",
            " TEXT DEFAULT 'new'",
            " NOT NULL DEFAULT 0",
        ]);
        let column = self.name("n");
        format!(
            "ALTER TABLE {} ADD COLUMN {column}{rule}",
            quote(&table.name)
        )
    }

    fn drop_column(&mut self, schema: &Schema) -> String {
        let table = self.table(schema);
        let column = self.column(table).name.clone();
        format!(
            "ALTER TABLE {} DROP COLUMN {}",
            quote(&table.name),
            quote(&column)
        )
    }

    fn rename_column(&mut self, schema: &Schema) -> String {
        let table = self.table(schema);
        let column = self.column(table).name.clone();
        let new = if self.rng.percent(20) {
            quote("odd name")
        } else {
            self.name("r")
        };
        format!(
            "ALTER TABLE {} RENAME COLUMN {} TO {new}",
            quote(&table.name),
            quote(&column)
        )
    }

    /// Sometimes to a name that was another table's before.
    fn rename_table(&mut self, schema: &Schema) -> String {
        let table = self.table(schema);
        if table.name == "lg" {
            return self.create_index(schema);
        }
        let new = if self.rng.percent(50) {
            format!("t{}", 1 + self.rng.below(u64::from(self.named) + 1))
        } else {
            self.name("t")
        };
        format!("ALTER TABLE {} RENAME TO {new}", quote(&table.name))
    }

    fn mistake(&mut self, schema: &Schema) -> String {
        let table = quote(&self.table(schema).name.clone());
        match self.rng.below(5) {
            0 => "INSERT INTO no_such_table VALUES (1)".to_owned(),
            1 => format!("INSERT INTO {table}(no_such_column) VALUES (1)"),
            2 => format!("UPDATE {table} SET no_such_column = 1"),
            3 => "INSERT INTO lg(m) VALUES (json('{bad'))".to_owned(),
            _ => "INSERT OR ROLLBACK INTO lg(id, m) VALUES (1, 'a'), (1, 'b')".to_owned(),
        }
    }

    fn condition(&mut self, table: &Table) -> String {
        let column = quote(&self.column(table).name.clone());
        match self.rng.below(10) {
            0 => String::new(),
            1 => " WHERE 0".to_owned(),
            2 => format!(" WHERE {column} IN ({}, {})", self.value(), self.value()),
            3 => format!(" WHERE {column} IS NULL"),
            4 => format!(" WHERE {column} > {}", self.value()),
            5..8 => format!(" WHERE rowid = {}", self.rng.below(12)),
            8 => format!(
                " WHERE rowid IN (SELECT rowid FROM {} ORDER BY rowid LIMIT 1)",
                quote(&table.name)
            ),
            _ => format!(" WHERE {column} = {}", self.value()),
        }
    }

    fn values_for(&mut self, table: &Table, columns: &[String]) -> String {
        let values: Vec<String> = columns
            .iter()
            .map(|name| {
                let column = table.columns.iter().find(|c| c.name == *name);
                let column = column.expect("chosen from the table").clone();
                self.value_for(&column)
            })
            .collect();
        values.join(", ")
    }

    fn value_for(&mut self, column: &Column) -> String {
        if column.in_key && column.decltype.eq_ignore_ascii_case("INTEGER") {
            return match self.rng.below(8) {
                0 => "NULL".to_owned(),
                1 => (40 + self.rng.below(5)).to_string(),
                _ => self.rng.below(12).to_string(),
            };
        }
        self.value()
    }

    fn value(&mut self) -> String {
        match self.rng.below(14) {
            0 => "NULL".to_owned(),
            1..6 => self.rng.below(9).to_string(),
            6 => format!("-{}", self.rng.below(3)),
            7 => self
                .pick(&["0.5", "-0.0", "1.0", "3e10", "1e999"])
                .to_owned(),
            8..12 => self
                .pick(&["'a'", "'A'", "'b'", "'bb'", "''", "'7'", "'long text'"])
                .to_owned(),
            12 => self.pick(&["x''", "x'00'", "x'61'"]).to_owned(),
            _ => self
                .pick(&["1 + 1", "'p' || 'q'", "abs(-4)", "upper('u')"])
                .to_owned(),
        }
    }

    fn some_columns(&mut self, table: &Table) -> Vec<String> {
        let chosen: Vec<String> = table
            .columns
            .iter()
            .filter(|_| self.rng.percent(75))
            .map(|c| c.name.clone())
            .collect();
        if chosen.is_empty() {
            return vec![table.columns[0].name.clone()];
        }
        chosen
    }

    fn table<'s>(&mut self, schema: &'s Schema) -> &'s Table {
        self.rng
            .choose(&schema.tables)
            .expect("at least two tables")
    }

    fn column<'t>(&mut self, table: &'t Table) -> &'t Column {
        self.rng
            .choose(&table.columns)
            .expect("a table has columns")
    }

    fn pick(&mut self, words: &[&'static str]) -> &'static str {
        self.rng.choose(words).copied().expect("a choice")
    }

    fn name(&mut self, prefix: &str) -> String {
        self.named += 1;
        format!("{prefix}{}", self.named)
    }
}

fn quote(name: &str) -> String {
    tidegate_engine::names::quote(name)
}

fn list(columns: &[String]) -> String {
    let quoted: Vec<String> = columns.iter().map(|name| quote(name)).collect();
    quoted.join(", ")
}
