//! The catalogue compares what objects are, not how they came to be.

mod support;

use support::Fixture;
use tidegate_engine::catalogue::{Catalogue, ObjectKind, catalogue};
use tidegate_engine::triggers;

impl Fixture {
    fn catalogue(&self) -> Catalogue {
        self.read(|view| catalogue(view).unwrap())
    }
}

const SCHEMA: [&str; 6] = [
    "CREATE TABLE b (id INTEGER PRIMARY KEY AUTOINCREMENT, v TEXT UNIQUE)",
    "CREATE TABLE a (x, y)",
    "CREATE INDEX a_x ON a (x)",
    "CREATE VIEW big AS SELECT * FROM a WHERE x > 10",
    "CREATE TRIGGER second AFTER INSERT ON a BEGIN INSERT INTO b (v) VALUES (new.x); END",
    "CREATE TRIGGER first AFTER INSERT ON a BEGIN DELETE FROM b WHERE v = new.y; END",
];

#[test]
fn user_objects_are_listed_by_name_and_triggers_in_the_order_of_their_creation() {
    let catalogue = Fixture::new(&SCHEMA).catalogue();
    let tables: Vec<&str> = catalogue
        .tables
        .iter()
        .map(|t| t.shape.name.as_str())
        .collect();
    assert_eq!(tables, ["a", "b"]);
    assert_eq!(catalogue.tables[0].indexes, ["a_x"]);
    assert_eq!(catalogue.tables[1].shape.integer_primary_key, Some(0));
    let objects: Vec<(ObjectKind, &str)> = catalogue
        .objects
        .iter()
        .map(|o| (o.kind, o.name.as_str()))
        .collect();
    assert_eq!(
        objects,
        [
            (ObjectKind::Table, "a"),
            (ObjectKind::Table, "b"),
            (ObjectKind::Index, "a_x"),
            (ObjectKind::View, "big"),
            (ObjectKind::Trigger, "second"),
            (ObjectKind::Trigger, "first"),
        ]
    );
}

#[test]
fn spelling_and_order_of_creation_do_not_change_the_schema() {
    let tidy = Fixture::new(&["CREATE TABLE a (x, y TEXT)", "CREATE TABLE b (z)"]).catalogue();
    let other = Fixture::new(&[
        "create table if not exists b(z)",
        "CREATE  TABLE main.a (x,  y   TEXT) -- a comment",
    ])
    .catalogue();
    assert_eq!(tidy.objects, other.objects);
    assert_eq!(tidy.schema_hash, other.schema_hash);
}

#[test]
fn each_kind_of_change_to_the_schema_changes_its_hash() {
    let changes = [
        "CREATE TABLE c (x)",
        "DROP INDEX a_x",
        "DROP VIEW big",
        "DROP TRIGGER first",
        "ALTER TABLE a ADD COLUMN z DEFAULT 5",
        "ALTER TABLE a RENAME COLUMN y TO yy",
        "ALTER TABLE a RENAME TO aa",
        "CREATE INDEX a_y ON a (y) WHERE y > 0",
    ];
    let before = Fixture::new(&SCHEMA).catalogue().schema_hash;
    for change in changes {
        let fixture = Fixture::new(&SCHEMA);
        assert_eq!(fixture.catalogue().schema_hash, before);
        fixture.run(&[change]);
        assert_ne!(fixture.catalogue().schema_hash, before, "{change}");
    }
}

#[test]
fn the_order_of_triggers_is_part_of_the_schema() {
    let mut swapped = SCHEMA;
    swapped.swap(4, 5);
    assert_ne!(
        Fixture::new(&SCHEMA).catalogue().schema_hash,
        Fixture::new(&swapped).catalogue().schema_hash
    );
}

#[test]
fn dormant_triggers_take_part_as_if_they_were_awake() {
    let fixture = Fixture::new(&SCHEMA);
    let awake = fixture.catalogue();
    let mut connection = fixture.store.internal().unwrap();
    connection.execute("BEGIN IMMEDIATE", &[]).unwrap();
    assert_eq!(triggers::put_to_sleep(&mut connection).unwrap(), 2);
    connection.execute("COMMIT", &[]).unwrap();
    fixture.run(&["INSERT INTO a VALUES (1, 2)"]);
    let rows = connection.query_integer("SELECT count(*) FROM b", &[]);
    assert_eq!(rows.unwrap(), Some(0), "a dormant trigger fires no more");
    assert_eq!(fixture.catalogue().objects, awake.objects);
    assert_eq!(fixture.catalogue().schema_hash, awake.schema_hash);

    connection.execute("BEGIN IMMEDIATE", &[]).unwrap();
    assert_eq!(triggers::wake(&mut connection).unwrap(), 2);
    connection.execute("COMMIT", &[]).unwrap();
    assert_eq!(fixture.catalogue().schema_hash, awake.schema_hash);
    let live = triggers::live_triggers(&mut connection).unwrap();
    assert_eq!(live.len(), 2);
    assert_eq!(triggers::trigger_set(&mut connection).unwrap(), live);
}

#[test]
fn counters_and_header_values_take_part_in_the_finals() {
    let fixture = Fixture::new(&SCHEMA);
    let mut seen = vec![fixture.catalogue().finals_hash];
    for change in [
        "INSERT INTO b (v) VALUES ('x')",
        "PRAGMA user_version = 7",
        "PRAGMA application_id = 8",
    ] {
        fixture.run(&[change]);
        let catalogue = fixture.catalogue();
        assert!(!seen.contains(&catalogue.finals_hash), "{change}");
        seen.push(catalogue.finals_hash);
    }
    let last = fixture.catalogue();
    assert_eq!(last.sequences, [("b".to_owned(), 1.into())]);
    assert_eq!((last.user_version, last.application_id), (7, 8));
}

#[test]
fn what_belongs_to_the_node_alone_is_left_out() {
    let fixture = Fixture::new(&[]);
    let before = fixture.catalogue();
    let mut writer = fixture.store.capturing(true).unwrap();
    for statement in [
        "BEGIN IMMEDIATE",
        "UPDATE _tidegate_tick SET n = n + 1",
        "COMMIT",
    ] {
        writer.execute(statement, &[]).unwrap();
    }
    let after = fixture.catalogue();
    assert!(after.tables.is_empty() && after.objects.is_empty());
    assert_eq!(after.schema_hash, before.schema_hash);
    assert_eq!(after.finals_hash, before.finals_hash);
}
