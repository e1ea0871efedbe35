//! The gate tells equal from different, over real engines.

mod common;

use common::{Primary, Replica, assert_equal};
use tidegate_replica::proof::{PassReport, Verdict};
use tidegate_replica::state::Phase;

const ROWS: &str = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 20000) \
                    INSERT INTO t SELECT i, 'row ' || i FROM n";

async fn pair(dir: &std::path::Path) -> (Primary, Replica) {
    let primary = Primary::start(&dir.join("n1")).await;
    primary
        .run(&[
            "CREATE TABLE t (id INTEGER PRIMARY KEY, v)",
            "CREATE TABLE \"odd \"\" name\" (rowid, v UNIQUE)",
            "CREATE TABLE empty (v)",
            "CREATE INDEX t_v ON t (v)",
            "CREATE TRIGGER tr AFTER INSERT ON empty BEGIN DELETE FROM empty; END",
            "INSERT INTO \"odd \"\" name\" VALUES (5, 0.0), (NULL, 'x')",
            ROWS,
        ])
        .await;
    let replica = Replica::start(&dir.join("n2"), &primary.url());
    replica.until("proven", |s| s.proof.equal.is_some()).await;
    (primary, replica)
}

fn named(report: &PassReport) -> Vec<(String, i64, &'static str)> {
    let name =
        |d: &tidegate_replica::check::Difference| (d.table.clone(), d.row.rowid, d.row.kind.word());
    let mut named: Vec<_> = report.differences.iter().map(name).collect();
    named.sort();
    named
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_nodes_are_proven_equal_while_writes_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (primary, replica) = pair(dir.path()).await;
    assert!(replica.handle.request_pass("test"));
    for round in 0..100 {
        let update = format!("UPDATE t SET v = v || '!' WHERE id % 997 = {round}");
        let insert = format!("INSERT INTO t (v) VALUES ('tail {round}')");
        primary.run(&[&update, &insert]).await;
    }
    primary
        .run(&["ALTER TABLE t RENAME TO u", "CREATE TABLE t (w)"])
        .await;
    let report = replica.pass().await;
    assert_eq!(report.verdict, Verdict::Equal, "{report:?}");
    assert!(report.rows >= 20_100, "{report:?}");
    assert_eq!(report.tables, 4);
    let seen = primary.until("seen", |f| f.passes >= 2).await;
    assert_eq!(seen.report.unwrap().verdict, Verdict::Equal);
    replica.until_level(&primary).await;
    assert_equal(&primary, &replica);
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn differing_rows_are_named_on_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let (primary, replica) = pair(dir.path()).await;
    replica.plant(&[
        "UPDATE t SET v = 'other' WHERE id = 777",
        "DELETE FROM t WHERE id = 15000",
        "INSERT INTO t VALUES (30000, 'extra')",
        "UPDATE \"odd \"\" name\" SET v = -0.0 WHERE v = 0.0",
    ]);
    let report = replica.pass().await;
    assert_eq!(report.verdict, Verdict::Diverged);
    let expected = [
        ("odd \" name".to_owned(), 1, "changed"),
        ("t".to_owned(), 777, "changed"),
        ("t".to_owned(), 15_000, "missing"),
        ("t".to_owned(), 30_000, "extra"),
    ];
    assert_eq!(named(&report), expected);
    let seen = primary
        .until("seen", |f| {
            f.report
                .as_ref()
                .is_some_and(|r| r.verdict == Verdict::Diverged)
        })
        .await;
    assert_eq!(named(&seen.report.unwrap()), expected);
    // It stays so, whatever comes later.
    replica.plant(&["UPDATE t SET v = 'row 777' WHERE id = 777"]);
    replica.pass().await;
    assert!(replica.state().proof.diverged.is_some());
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_difference_in_schema_or_final_values_is_named() {
    for (planted, words) in [
        ("DROP INDEX t_v", "index t_v is missing here"),
        ("PRAGMA user_version = 7", "user_version differs"),
        ("CREATE TABLE more (v)", "table more exists here only"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (primary, replica) = pair(dir.path()).await;
        replica.plant(&[planted]);
        let report = replica.pass().await;
        assert_eq!(report.verdict, Verdict::Diverged);
        assert!(report.summary().contains(words), "{}", report.summary());
        replica.stop().await;
        primary.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_difference_planted_while_stopped_is_found_before_anything_is_proven() {
    let dir = tempfile::tempdir().unwrap();
    let (primary, replica) = pair(dir.path()).await;
    replica.plant(&["UPDATE t SET v = x'726f772031' WHERE id = 1"]);
    replica.stop().await;
    let replica = Replica::start(&dir.path().join("n2"), &primary.url());
    let state = replica.until("a verdict", |s| s.proof.passes > 0).await;
    assert!(state.proof.equal.is_none());
    assert_eq!(
        named(&state.proof.diverged.unwrap()),
        [("t".to_owned(), 1, "changed")]
    );
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_begun_at_the_source_reaches_every_follower() {
    let dir = tempfile::tempdir().unwrap();
    let (primary, replica) = pair(dir.path()).await;
    let before = replica.state().proof.passes;
    assert_eq!(primary.followers.begin_pass(None).len(), 1);
    replica
        .until("another pass", |s| s.proof.passes > before)
        .await;
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_mends_what_differs_and_a_new_pass_proves_it() {
    let dir = tempfile::tempdir().unwrap();
    let (primary, replica) = pair(dir.path()).await;
    replica.plant(&[
        "UPDATE t SET v = 'other' WHERE id = 777",
        "DROP INDEX t_v",
        "PRAGMA user_version = 9",
        "CREATE TABLE more (v)",
    ]);
    assert_eq!(replica.pass().await.verdict, Verdict::Diverged);
    assert!(replica.handle.request_repair("test"));
    let repaired = replica
        .until("repaired and proven", |s| {
            s.repairs == 1 && s.proof.equal.is_some()
        })
        .await;
    assert!(repaired.proof.diverged.is_none());
    primary
        .run(&["INSERT INTO t VALUES (50000, 'later')"])
        .await;
    replica.until_level(&primary).await;
    assert_equal(&primary, &replica);

    // The same, asked for at the other end.
    replica.plant(&["DELETE FROM t WHERE id = 1"]);
    assert_eq!(replica.pass().await.verdict, Verdict::Diverged);
    assert_eq!(primary.followers.begin_repair(None).len(), 1);
    replica
        .until("repaired and proven", |s| {
            s.repairs == 2 && s.proof.equal.is_some()
        })
        .await;
    assert_equal(&primary, &replica);
    replica.stop().await;
    primary.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_conflicts_stalls_the_node_until_it_is_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let (primary, replica) = pair(dir.path()).await;
    replica.plant(&["INSERT INTO \"odd \"\" name\" (_rowid_, v) VALUES (77, 'taken')"]);
    let before = replica.state().applied;
    primary
        .run(&["INSERT INTO \"odd \"\" name\" VALUES (1, 'taken')"])
        .await;
    let state = replica
        .until("stalled", |s| s.phase == Phase::Stalled)
        .await;
    assert_eq!(state.applied, before);
    assert!(state.detail.contains("cannot apply"), "{}", state.detail);
    assert!(replica.handle.request_repair("test"));
    replica
        .until("repaired and proven", |s| {
            s.repairs == 1 && s.proof.equal.is_some()
        })
        .await;
    assert_equal(&primary, &replica);
    replica.stop().await;
    primary.stop().await;
}
