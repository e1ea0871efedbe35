//! Digests tell apart what SQL's `=` forgives, and cover each row exactly once.

mod support;

use support::Fixture;
use tidegate_engine::digest::{self, KeyRange, RangeDigest, RangeLimits};
use tidegate_engine::{ReadView, Value};

impl Fixture {
    fn insert(&self, sql: &str, values: &[Value]) {
        self.store.internal().unwrap().execute(sql, values).unwrap();
    }

    fn whole(&self, table: &str) -> RangeDigest {
        self.read(|view| digest::digest_range(view, table, KeyRange::ALL).unwrap())
    }
}

fn digest_of_one(value: Value) -> u128 {
    let fixture = Fixture::new(&["CREATE TABLE t (v)"]);
    fixture.insert("INSERT INTO t (rowid, v) VALUES (1, ?)", &[value]);
    let digest = fixture.whole("t");
    assert_eq!(digest.rows, 1);
    digest.hash
}

#[test]
fn values_that_sql_takes_for_equal_have_different_digests() {
    let values = [
        Value::Null,
        Value::Integer(0),
        Value::Integer(1),
        Value::Real(1.0),
        Value::Real(0.0),
        Value::Real(-0.0),
        Value::Real(f64::INFINITY),
        Value::Text(String::new()),
        Value::Blob(Vec::new()),
        Value::Text("a".into()),
        Value::Blob(b"a".to_vec()),
        Value::Text("a\0".into()),
        Value::Text("A".into()),
        Value::Text("1".into()),
    ];
    let digests: Vec<u128> = values.iter().cloned().map(digest_of_one).collect();
    for (i, a) in digests.iter().enumerate() {
        for (j, b) in digests.iter().enumerate().skip(i + 1) {
            assert_ne!(a, b, "{:?} and {:?}", values[i], values[j]);
        }
    }
}

#[test]
fn bytes_that_move_from_one_column_to_the_next_change_the_digest() {
    let one = Fixture::new(&["CREATE TABLE t (a, b)", "INSERT INTO t VALUES ('ab', 'c')"]);
    let other = Fixture::new(&["CREATE TABLE t (a, b)", "INSERT INTO t VALUES ('a', 'bc')"]);
    assert_ne!(one.whole("t"), other.whole("t"));
}

#[test]
fn the_rowid_and_the_name_of_the_table_take_part() {
    let fixture = Fixture::new(&[
        "CREATE TABLE t (v)",
        "CREATE TABLE u (v)",
        "CREATE TABLE w (v)",
        "INSERT INTO t (rowid, v) VALUES (1, 'x')",
        "INSERT INTO u (rowid, v) VALUES (1, 'x')",
    ]);
    assert_ne!(fixture.whole("t"), fixture.whole("u"));
    let before = fixture.whole("t");
    fixture.run(&["UPDATE t SET rowid = 2"]);
    assert_ne!(fixture.whole("t"), before);
    assert_eq!(fixture.whole("w"), RangeDigest::default());
}

#[test]
fn the_order_in_which_rows_were_written_does_not_matter() {
    let table = "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)";
    let one = Fixture::new(&[table]);
    let other = Fixture::new(&[table, "INSERT INTO t VALUES (77, 'gone')"]);
    for id in 1..=200 {
        one.insert("INSERT INTO t VALUES (?, 'v' || ?1)", &[id.into()]);
        let id = 201 - id;
        other.insert(
            "INSERT OR REPLACE INTO t VALUES (?, 'v' || ?1)",
            &[id.into()],
        );
    }
    assert_eq!(one.whole("t"), other.whole("t"));
    one.run(&["UPDATE t SET v = 'V77' WHERE id = 77"]);
    assert_ne!(one.whole("t"), other.whole("t"));
}

/// Rowids at both ends of the range, around zero, and with gaps.
fn spread_out() -> Fixture {
    let fixture = Fixture::new(&["CREATE TABLE t (v)", "CREATE INDEX i ON t (v)"]);
    for rowid in [
        i64::MIN,
        i64::MIN + 1,
        -5,
        0,
        1,
        2,
        900,
        i64::MAX - 1,
        i64::MAX,
    ] {
        let row = [rowid.into(), rowid.into()];
        fixture.insert("INSERT INTO t (rowid, v) VALUES (?, ?)", &row);
    }
    fixture
}

#[test]
fn ranges_cover_every_row_exactly_once() {
    let fixture = spread_out();
    fixture.read(|view| {
        let whole = digest::digest_range(view, "t", KeyRange::ALL).unwrap();
        for rows_max in 1..=10 {
            let limits = RangeLimits {
                rows_max,
                bytes_max: u64::MAX,
            };
            let last = digest::last_rowid(view, "t").unwrap().unwrap();
            let behind = KeyRange {
                after: Some(last),
                up_to: None,
            };
            let mut sum = digest::digest_range(view, "t", behind).unwrap();
            let mut after = None;
            while after != Some(last) {
                let (range, part) = digest::digest_next(view, "t", after, last, limits).unwrap();
                assert_eq!(part, digest::digest_range(view, "t", range).unwrap());
                assert!(part.rows <= rows_max && range.after == after);
                sum = sum.plus(part);
                after = range.up_to;
            }
            assert_eq!(sum, whole, "{rows_max} rows a range");
        }
    });
}

#[test]
fn a_table_that_grows_during_a_walk_does_not_make_it_endless() {
    let fixture = Fixture::new(&["CREATE TABLE t (v)", "INSERT INTO t VALUES (1), (2), (3)"]);
    let last = fixture.read(|view| digest::last_rowid(view, "t").unwrap().unwrap());
    let limits = RangeLimits {
        rows_max: 1,
        bytes_max: u64::MAX,
    };
    let (mut after, mut ranges) = (None, 0);
    while after != Some(last) {
        fixture.run(&["INSERT INTO t VALUES (4)"]);
        let next = |view: &mut ReadView<'_>| digest::digest_next(view, "t", after, last, limits);
        after = fixture.read(next).unwrap().0.up_to;
        ranges += 1;
        assert!(ranges <= 4);
    }
}

#[test]
fn wide_rows_end_a_range_by_their_bytes() {
    let fixture = Fixture::new(&[
        "CREATE TABLE t (v)",
        "INSERT INTO t VALUES (zeroblob(1000)), (zeroblob(1000)), (zeroblob(1000))",
    ]);
    let limits = RangeLimits {
        rows_max: 1000,
        bytes_max: 1500,
    };
    let (range, part) =
        fixture.read(|view| digest::digest_next(view, "t", None, 3, limits).unwrap());
    assert_eq!((range.up_to, part.rows), (Some(2), 2));
}

#[test]
fn cutting_gives_ranges_of_the_size_asked_for_and_leaves_the_last_one_open() {
    let fixture = Fixture::new(&["CREATE TABLE t (v)"]);
    for _ in 0..10 {
        fixture.run(&["INSERT INTO t VALUES ('x')"]);
    }
    let cut = |after| fixture.read(|view| digest::cut(view, "t", after, 4).unwrap());
    assert_eq!(cut(None).up_to, Some(4));
    assert_eq!(cut(Some(4)).up_to, Some(8));
    assert_eq!(cut(Some(8)).up_to, None);
}

#[test]
fn the_row_that_differs_is_found_by_its_hash() {
    let fixture = spread_out();
    let rows =
        |limit| fixture.read(|view| digest::digest_rows(view, "t", KeyRange::ALL, limit).unwrap());
    let before = rows(100);
    assert_eq!(before.len(), 9);
    assert_eq!(rows(3), before[..3]);
    fixture.run(&["UPDATE t SET v = 901 WHERE rowid = 900"]);
    let changed: Vec<i64> = rows(100)
        .iter()
        .zip(&before)
        .filter(|(now, then)| now != then)
        .map(|(now, _)| now.0)
        .collect();
    assert_eq!(changed, [900]);
}

#[test]
fn a_table_with_columns_called_like_the_rowid_is_digested_by_its_true_rowid() {
    let fixture = Fixture::new(&[
        "CREATE TABLE t (rowid TEXT, _rowid_ TEXT, v)",
        "INSERT INTO t (oid, rowid, _rowid_, v) VALUES (41, 'a', 'b', 1)",
    ]);
    let rows = fixture.read(|view| digest::digest_rows(view, "t", KeyRange::ALL, 9).unwrap());
    assert_eq!(rows[0].0, 41);
}

#[test]
fn scans_use_no_index() {
    let fixture = spread_out();
    fixture.read(|view| {
        for condition in [
            "",
            " WHERE \"rowid\" > 1",
            " WHERE \"rowid\" > 1 AND \"rowid\" <= 5",
        ] {
            let sql = format!(
                "EXPLAIN QUERY PLAN SELECT \"rowid\", \"v\" FROM \"t\" NOT INDEXED{condition}"
            );
            let plan = format!("{:?}", view.query_all(&sql, &[]).unwrap());
            assert!(!plan.contains(" i"), "{plan}");
        }
    });
}

#[test]
fn a_table_that_is_not_there_is_an_error_and_not_an_empty_table() {
    let fixture = Fixture::new(&[]);
    let outcome = fixture.read(|view| digest::digest_range(view, "t", KeyRange::ALL));
    assert!(outcome.unwrap_err().to_string().contains("no such table"));
}
