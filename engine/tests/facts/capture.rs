//! What capture logs, and what it forgets.

use tidegate_engine::Error;

use crate::bed::{Bed, fails, head, integers, log, logged, rows, run, run_all, texts, transact};

const THREE_ROWS: [&str; 2] = [
    "CREATE TABLE t(id INTEGER PRIMARY KEY, x)",
    "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
];

/// Fact 2.
#[test]
fn autocommit_statements_with_triggers_log_commits_in_their_middle() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "CREATE TABLE t(id INTEGER PRIMARY KEY, x)",
            "CREATE TABLE m(id INTEGER PRIMARY KEY, x)",
            "CREATE TRIGGER tr AFTER INSERT ON t BEGIN INSERT INTO m(x) VALUES (new.x); END",
        ],
    );
    let autocommit = logged(&mut c, |c| {
        run(c, "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)");
    });
    let commits = |log: &[String]| log.iter().filter(|l| *l == "commit").count();
    assert!(commits(&autocommit) > 1, "{autocommit:?}");
    let explicit = logged(&mut c, |c| {
        transact(c, &["INSERT INTO t VALUES (4, 1), (5, 2), (6, 3)"]);
    });
    assert_eq!(commits(&explicit), 1, "{explicit:?}");
    assert_eq!(explicit.last().map(String::as_str), Some("commit"));
}

/// Fact 2, cascades.
#[test]
fn autocommit_cascades_log_commits_in_their_middle() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "PRAGMA foreign_keys = 1",
            "CREATE TABLE p(id INTEGER PRIMARY KEY)",
            "CREATE TABLE k(id INTEGER PRIMARY KEY, p REFERENCES p(id) ON DELETE CASCADE)",
            "INSERT INTO p VALUES (1), (2), (3)",
            "INSERT INTO k VALUES (1, 1), (2, 2), (3, 3)",
        ],
    );
    let autocommit = logged(&mut c, |c| {
        run(c, "DELETE FROM p");
    });
    let commits = autocommit.iter().filter(|l| *l == "commit").count();
    assert!(commits > 1, "{autocommit:?}");
}

/// Fact 3.
#[test]
fn insert_or_fail_keeps_the_first_rows_and_in_autocommit_logs_no_commit() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(&mut c, &THREE_ROWS);
    let autocommit = logged(&mut c, |c| {
        fails(
            c,
            "INSERT OR FAIL INTO t VALUES (4, 4), (5, 5), (1, 1), (6, 6)",
        );
    });
    assert_eq!(autocommit, ["insert t 4", "insert t 5"]);
    assert_eq!(integers(&mut c, "SELECT count(*) FROM t"), [5]);
    let explicit = logged(&mut c, |c| {
        run(c, "BEGIN IMMEDIATE");
        fails(c, "INSERT OR FAIL INTO t VALUES (7, 7), (1, 1)");
        run(c, "COMMIT");
    });
    assert_eq!(explicit, ["insert t 7", "commit"]);
}

/// Fact 4.
#[test]
fn a_trigger_that_updates_its_own_row_logs_the_update_before_the_insert() {
    let bed = Bed::new();
    let mut c = bed.capturing_in("full");
    run_all(
        &mut c,
        &[
            "CREATE TABLE t(id INTEGER PRIMARY KEY, x)",
            "CREATE TRIGGER tr AFTER INSERT ON t BEGIN \
             UPDATE t SET x = x * 10 WHERE id = new.id; END",
        ],
    );
    let changes = logged(&mut c, |c| transact(c, &["INSERT INTO t VALUES (1, 5)"]));
    assert_eq!(changes, ["update t 1", "insert t 1", "commit"]);
    assert_eq!(integers(&mut c, "SELECT x FROM t"), [50]);
    let image = "SELECT json_extract(bin_record_json_object('[\"id\",\"x\"]', after), '$.x') \
                 FROM turso_cdc WHERE table_name = 't' AND change_type = 1";
    assert_eq!(
        integers(&mut c, image),
        [5],
        "the INSERT holds the old image"
    );
}

/// Fact 5.
#[test]
fn an_upsert_is_logged_with_before_equal_to_after() {
    let bed = Bed::new();
    let mut c = bed.capturing_in("full");
    run_all(&mut c, &THREE_ROWS);
    transact(
        &mut c,
        &["INSERT INTO t VALUES (2, 99) ON CONFLICT(id) DO UPDATE SET x = excluded.x"],
    );
    let same = "SELECT before = after FROM turso_cdc WHERE table_name = 't' AND change_type = 0";
    assert_eq!(integers(&mut c, same), [1]);
}

/// Fact 6.
#[test]
fn a_key_change_is_logged_as_delete_and_insert_without_an_after_image() {
    let bed = Bed::new();
    let mut c = bed.capturing_in("full");
    run_all(&mut c, &THREE_ROWS);
    let changes = logged(&mut c, |c| {
        transact(c, &["UPDATE t SET id = 44 WHERE id = 1"]);
    });
    assert_eq!(changes, ["delete t 1", "insert t 44", "commit"]);
    let images = "SELECT before IS NOT NULL, after IS NULL FROM turso_cdc \
                  WHERE table_name = 't' AND id = 44";
    assert_eq!(rows(&mut c, images), [[1.into(), 1.into()]]);
}

/// Fact 7.
#[test]
fn an_update_that_evicts_another_row_does_not_log_the_eviction() {
    let unique = "CREATE TABLE t(id INTEGER PRIMARY KEY, u UNIQUE)";
    let inherited = "CREATE TABLE t(id INTEGER PRIMARY KEY, u UNIQUE ON CONFLICT REPLACE)";
    let key = "CREATE TABLE t(id INTEGER PRIMARY KEY ON CONFLICT REPLACE, u)";
    for (table, update, log) in [
        (
            unique,
            "UPDATE OR REPLACE t SET u = 1 WHERE id = 2",
            &["update t 2", "commit"][..],
        ),
        (
            inherited,
            "UPDATE t SET u = 1 WHERE id = 2",
            &["update t 2", "commit"],
        ),
        (
            key,
            "UPDATE t SET id = 1 WHERE id = 2",
            &["delete t 2", "insert t 1", "commit"],
        ),
    ] {
        let bed = Bed::new();
        let mut c = bed.capturing();
        run_all(&mut c, &[table, "INSERT INTO t VALUES (1, 1), (2, 2)"]);
        let changes = logged(&mut c, |c| transact(c, &[update]));
        assert_eq!(changes, log, "{update}");
        assert_eq!(integers(&mut c, "SELECT count(*) FROM t"), [1], "{update}");
    }
}

/// Fact 7, in a trigger body.
#[test]
fn an_evicting_update_in_a_trigger_does_not_log_the_eviction() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "CREATE TABLE a(id INTEGER PRIMARY KEY)",
            "CREATE TABLE t(id INTEGER PRIMARY KEY, u UNIQUE)",
            "INSERT INTO t VALUES (1, 1), (2, 2)",
            "CREATE TRIGGER tr AFTER INSERT ON a BEGIN \
             UPDATE OR REPLACE t SET u = 1 WHERE id = 2; END",
        ],
    );
    let changes = logged(&mut c, |c| transact(c, &["INSERT INTO a VALUES (7)"]));
    assert!(!changes.contains(&"delete t 1".to_owned()), "{changes:?}");
    assert_eq!(integers(&mut c, "SELECT id FROM t"), [2]);
}

/// Edge 1.
#[test]
fn an_outer_replace_turns_a_plain_update_in_a_trigger_into_an_evicting_one() {
    for fired_by in [
        "REPLACE INTO a VALUES (7)",
        "INSERT OR REPLACE INTO a VALUES (7)",
    ] {
        let bed = Bed::new();
        let mut c = bed.capturing();
        run_all(
            &mut c,
            &[
                "CREATE TABLE a(id INTEGER PRIMARY KEY)",
                "CREATE TABLE t(id INTEGER PRIMARY KEY, u UNIQUE)",
                "INSERT INTO t VALUES (1, 1), (2, 2)",
                "CREATE TRIGGER tr AFTER INSERT ON a BEGIN \
                 UPDATE t SET u = 1 WHERE id = 2; END",
            ],
        );
        let changes = logged(&mut c, |c| transact(c, &[fired_by]));
        assert!(!changes.contains(&"delete t 1".to_owned()), "{changes:?}");
        assert_eq!(integers(&mut c, "SELECT id FROM t"), [2], "{fired_by}");
    }
}

/// Fact 72.
#[test]
fn a_row_whose_trigger_fails_in_the_manner_of_fail_is_kept_but_not_logged() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "CREATE TABLE t(id INTEGER PRIMARY KEY, u UNIQUE)",
            "INSERT INTO t VALUES (1, 'taken')",
            "CREATE TRIGGER tr AFTER INSERT ON t BEGIN \
             UPDATE t SET u = 'taken' WHERE id = new.id; END",
        ],
    );
    let changes = logged(&mut c, |c| {
        run(c, "BEGIN IMMEDIATE");
        fails(c, "INSERT OR FAIL INTO t VALUES (2, 'free')");
        run(c, "COMMIT");
    });
    assert_eq!(integers(&mut c, "SELECT id FROM t"), [1, 2], "kept");
    assert!(!changes.contains(&"insert t 2".to_owned()), "{changes:?}");
}

/// Fact 73.
#[test]
fn rows_set_aside_for_a_window_function_are_counted_as_changed() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &["CREATE TABLE t(x)", "INSERT INTO t VALUES (1), (2), (3)"],
    );
    let counted = run(
        &mut c,
        "INSERT INTO t SELECT row_number() OVER (ORDER BY x) FROM t",
    );
    assert_eq!(integers(&mut c, "SELECT count(*) FROM t"), [6]);
    assert!(counted > 3, "{counted}");
}

/// Fact 8.
#[test]
fn insert_or_replace_with_several_conflicts_logs_every_key() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "CREATE TABLE t(id INTEGER PRIMARY KEY, u UNIQUE, v UNIQUE)",
            "INSERT INTO t VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3)",
        ],
    );
    let changes = logged(&mut c, |c| {
        transact(c, &["INSERT OR REPLACE INTO t VALUES (1, 2, 3)"]);
    });
    for key in ["t 1", "t 2", "t 3"] {
        assert!(
            changes.iter().any(|l| l.ends_with(key)),
            "{key}: {changes:?}"
        );
    }
    assert_eq!(integers(&mut c, "SELECT id FROM t"), [1]);
}

/// Fact 18.
#[test]
fn a_connection_without_the_setting_logs_nothing() {
    let bed = Bed::new();
    let mut capturing = bed.capturing();
    run_all(&mut capturing, &THREE_ROWS);
    let mut other = bed.plain();
    let before = head(&mut capturing);
    transact(&mut other, &["INSERT INTO t VALUES (9, 9)"]);
    assert_eq!(head(&mut capturing), before);
    assert_eq!(integers(&mut capturing, "SELECT count(*) FROM t"), [4]);
}

/// Fact 32.
#[test]
fn a_write_after_pragma_table_info_is_logged() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(&mut c, &THREE_ROWS);
    let changes = logged(&mut c, |c| {
        rows(c, "SELECT name FROM pragma_table_info('t')");
        transact(c, &["UPDATE t SET x = 9 WHERE id = 1"]);
    });
    assert_eq!(changes, ["update t 1", "commit"]);
}

/// Fact 33.
#[test]
fn children_of_foreign_key_actions_are_logged() {
    for (action, kind) in [
        ("ON DELETE CASCADE", "delete"),
        ("ON DELETE SET NULL", "update"),
        ("ON DELETE SET DEFAULT", "update"),
    ] {
        let bed = Bed::new();
        let mut c = bed.capturing();
        run_all(
            &mut c,
            &[
                "PRAGMA foreign_keys = 1",
                "CREATE TABLE p(id INTEGER PRIMARY KEY)",
                &format!(
                    "CREATE TABLE k(id INTEGER PRIMARY KEY, p DEFAULT 1 REFERENCES p(id) {action})"
                ),
                "INSERT INTO p VALUES (1), (2)",
                "INSERT INTO k VALUES (5, 2)",
            ],
        );
        let changes = logged(&mut c, |c| transact(c, &["DELETE FROM p WHERE id = 2"]));
        assert!(
            changes.contains(&format!("{kind} k 5")),
            "{action}: {changes:?}"
        );
    }
}

/// Fact 33, ON UPDATE.
#[test]
fn children_of_an_updated_key_are_logged() {
    for action in [
        "ON UPDATE CASCADE",
        "ON UPDATE SET NULL",
        "ON UPDATE SET DEFAULT",
    ] {
        let bed = Bed::new();
        let mut c = bed.capturing();
        run_all(
            &mut c,
            &[
                "PRAGMA foreign_keys = 1",
                "CREATE TABLE p(id INTEGER PRIMARY KEY)",
                &format!(
                    "CREATE TABLE k(id INTEGER PRIMARY KEY, p DEFAULT 1 REFERENCES p(id) {action})"
                ),
                "INSERT INTO p VALUES (1), (2)",
                "INSERT INTO k VALUES (5, 2)",
            ],
        );
        let changes = logged(&mut c, |c| {
            transact(c, &["UPDATE p SET id = 3 WHERE id = 2"]);
        });
        assert!(
            changes.contains(&"update k 5".to_owned()),
            "{action}: {changes:?}"
        );
    }
}

/// Fact 34.
#[test]
fn changes_and_last_insert_rowid_are_right_while_capturing() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(&mut c, &THREE_ROWS);
    run(&mut c, "BEGIN IMMEDIATE");
    assert_eq!(run(&mut c, "INSERT INTO t VALUES (40, 1), (41, 1)"), 2);
    assert_eq!(c.last_insert_rowid(), 41);
    assert_eq!(run(&mut c, "UPDATE t SET x = 0"), 5);
    assert_eq!(c.last_insert_rowid(), 41);
    run(&mut c, "COMMIT");
    assert_eq!(
        rows(&mut c, "SELECT last_insert_rowid(), changes()"),
        [[41.into(), 5.into()]]
    );
}

/// Fact 41.
#[test]
fn modes_with_images_make_many_upserts_fail() {
    let attempt = |mode: &str| -> Result<(), Error> {
        let bed = Bed::new();
        let mut c = bed.capturing_in(mode);
        run(
            &mut c,
            "CREATE TABLE t(id INTEGER PRIMARY KEY, k UNIQUE, v)",
        );
        let sql = "INSERT INTO t(k, v) VALUES (?, ?) \
                   ON CONFLICT(k) DO UPDATE SET v = excluded.v || excluded.v";
        let mut seed = 7_i64;
        for n in 0..3_000_i64 {
            seed = (seed * 1_103_515_245 + 12_345) & 0x7fff_ffff;
            let text = "x".repeat(usize::try_from(seed % 90).expect("small") + 1);
            if n % 50 == 0 {
                run(&mut c, "BEGIN IMMEDIATE");
            }
            c.execute(sql, &[(seed % 200).into(), text.into()])?;
            if n % 50 == 49 {
                run(&mut c, "COMMIT");
            }
        }
        Ok(())
    };
    assert!(attempt("id").is_ok());
    let broken = ["before", "full"].map(attempt);
    assert!(broken.iter().all(Result::is_err), "{broken:?}");
}

/// Fact 42.
#[test]
fn the_log_table_appears_when_capture_is_first_switched_on() {
    let bed = Bed::new();
    let mut plain = bed.plain();
    let error = fails(&mut plain, "SELECT max(change_id) FROM turso_cdc");
    assert!(error.to_string().contains("no such table"), "{error}");
    let mut c = bed.capturing();
    let made = texts(
        &mut c,
        "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name",
    );
    for table in ["turso_cdc", "turso_cdc_version"] {
        assert!(made.iter().any(|name| name == table), "{made:?}");
    }
    assert!(log(&mut c).is_empty());
    assert_eq!(
        texts(&mut c, "SELECT version FROM turso_cdc_version"),
        ["v2"]
    );
}

/// Fact 42, the rest: a table made by hand is taken for an older version.
#[test]
fn a_log_table_made_by_hand_counts_as_the_first_version() {
    let bed = Bed::new();
    let mut plain = bed.plain();
    run(
        &mut plain,
        "CREATE TABLE turso_cdc(change_id INTEGER PRIMARY KEY AUTOINCREMENT, change_time INTEGER, \
         change_type INTEGER, table_name TEXT, id, before BLOB, after BLOB, updates BLOB)",
    );
    let mut c = bed.capturing();
    run_all(&mut c, &THREE_ROWS);
    let commits = "SELECT count(*) FROM turso_cdc WHERE change_type = 2";
    assert_eq!(integers(&mut c, commits), [0]);
}
