//! The rules of the log, as seen from inside a writer's transaction.

use tidegate_engine::adapter::Connection;
use tidegate_engine::logged::{self, Ledger, Sealed};
use tidegate_engine::{Seq, Store, Value};

struct Writer {
    _dir: tempfile::TempDir,
    connection: Connection,
    _store: Store,
}

impl Writer {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("d")).unwrap();
        let connection = store.capturing(true).unwrap();
        Self {
            _dir: dir,
            connection,
            _store: store,
        }
    }

    fn transaction(&mut self, work: impl FnOnce(&mut Connection, &mut Ledger)) -> Sealed {
        self.execute("BEGIN IMMEDIATE");
        let mut ledger = Ledger::begin(&mut self.connection).unwrap();
        work(&mut self.connection, &mut ledger);
        let sealed = ledger.seal(&mut self.connection).unwrap();
        self.execute("COMMIT");
        sealed
    }

    fn execute(&mut self, sql: &str) -> i64 {
        self.connection.execute(sql, &[]).unwrap()
    }

    fn rows(&mut self, sql: &str) -> Vec<Vec<Value>> {
        self.connection.query_all(sql, &[]).unwrap()
    }

    fn head(&mut self) -> Seq {
        logged::head(&mut self.connection).unwrap()
    }
}

fn ddl(sql: &'static str) -> impl FnOnce(&mut Connection, &mut Ledger) {
    move |connection, _| assert!(logged::run_ddl(connection, sql).unwrap())
}

#[test]
fn a_schema_statement_is_logged_under_its_own_position() {
    let mut writer = Writer::new();
    let sealed = writer.transaction(ddl("CREATE TABLE t(a)"));
    assert!(sealed.moved());
    let logged = writer.rows("SELECT id, sql FROM _tidegate_ddl");
    assert_eq!(
        logged,
        [vec![
            sealed.head.to_sql().into(),
            "CREATE TABLE t(a)".into()
        ]]
    );
    assert_eq!(writer.head(), sealed.head.next(), "the engine's own record");
}

#[test]
fn if_not_exists_that_finds_the_table_logs_nothing() {
    let mut writer = Writer::new();
    writer.transaction(ddl("CREATE TABLE t(a)"));
    let before = writer.head();
    let sealed = writer.transaction(|connection, _| {
        for sql in [
            "CREATE TABLE IF NOT EXISTS t(a, b)",
            "CREATE TABLE IF NOT EXISTS T AS SELECT 1",
            "DROP TABLE IF EXISTS missing",
        ] {
            assert!(!logged::run_ddl(connection, sql).unwrap(), "{sql}");
        }
    });
    assert!(!sealed.moved());
    assert_eq!(writer.head(), before);
}

#[test]
fn a_trigger_is_not_logged_but_moves_the_head() {
    let mut writer = Writer::new();
    writer.transaction(ddl("CREATE TABLE t(a)"));
    let sealed = writer.transaction(ddl(
        "CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END",
    ));
    assert!(sealed.moved());
    assert_eq!(writer.rows("SELECT 1 FROM _tidegate_ddl").len(), 1);
}

#[test]
fn create_table_as_becomes_a_logged_text_and_captured_rows() {
    let mut writer = Writer::new();
    writer.transaction(|connection, _| {
        let sql = "CREATE TABLE \"as\" AS WITH x(n) AS (VALUES (1), (2)) \
                   SELECT n AS \"A b\", 'as' || n AS c FROM x -- AS";
        assert!(logged::run_ddl(connection, sql).unwrap());
    });
    let rows = writer.rows("SELECT rowid, * FROM \"as\"");
    assert_eq!(rows[1], vec![2.into(), 2.into(), "as2".into()]);
    let text = writer.rows("SELECT sql FROM _tidegate_ddl");
    assert_eq!(text, [["CREATE TABLE \"as\"(\"A b\",c)".into()]]);
    let captured = writer.rows("SELECT id FROM turso_cdc WHERE table_name = 'as'");
    assert_eq!(captured.len(), 2);
}

#[test]
fn a_failing_create_table_as_leaves_nothing() {
    let mut writer = Writer::new();
    writer.execute("BEGIN IMMEDIATE");
    let sql = "CREATE TABLE c AS SELECT x FROM missing";
    assert!(logged::run_ddl(&mut writer.connection, sql).is_err());
    assert!(!writer.connection.is_autocommit());
    assert_eq!(writer.rows("SELECT 1 FROM _tidegate_ddl").len(), 0);
    writer.execute("COMMIT");
}

#[test]
fn an_ignored_insert_into_an_autoincrement_table_moves_the_head() {
    let mut writer = Writer::new();
    writer.transaction(|connection, ledger| {
        let sql = "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, u UNIQUE)";
        logged::run_ddl(connection, sql).unwrap();
        let changes = connection.execute("INSERT INTO t(u) VALUES (1)", &[]);
        ledger.wrote(changes.unwrap(), true);
    });
    let sealed = writer.transaction(|connection, ledger| {
        let changes = connection.execute("INSERT OR IGNORE INTO t(u) VALUES (1)", &[]);
        assert_eq!(changes.unwrap(), 0);
        ledger.wrote(0, true);
    });
    assert!(sealed.moved());
}

#[test]
fn a_write_that_was_not_captured_is_fatal() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let mut capturing = store.capturing(true).unwrap();
    capturing.execute("CREATE TABLE t(a)", &[]).unwrap();
    let mut blind = store.internal().unwrap();
    blind.execute("BEGIN IMMEDIATE", &[]).unwrap();
    let mut ledger = Ledger::begin(&mut blind).unwrap();
    let changes = blind.execute("INSERT INTO t VALUES (1)", &[]).unwrap();
    ledger.wrote(changes, true);
    let error = ledger.seal(&mut blind).unwrap_err();
    assert!(error.is_fatal(), "{error}");
    assert!(logged::tick(&mut blind).unwrap_err().is_fatal());
    assert!(logged::log_ddl(&mut blind, "DROP TABLE t").is_err());
}

#[test]
fn a_savepoint_rolled_back_takes_its_count_along() {
    let mut writer = Writer::new();
    writer.transaction(ddl("CREATE TABLE t(a)"));
    let sealed = writer.transaction(|connection, ledger| {
        let mut run = |sql: &str| connection.execute(sql, &[]).unwrap();
        run("SAVEPOINT s");
        ledger.wrote(run("INSERT INTO t VALUES (1), (2)"), true);
        run("ROLLBACK TO s");
        ledger.undone(connection).unwrap();
        let changes = connection.execute("INSERT INTO t VALUES (3)", &[]);
        ledger.wrote(changes.unwrap(), true);
    });
    assert!(sealed.moved());
}
