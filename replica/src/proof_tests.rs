//! What counts as a proof, and what ends it.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn seq(value: u64) -> Seq {
    Seq::new(value)
}

fn check(number: u64, table: &str, after: Option<i64>, up_to: Option<i64>) -> Compared {
    Compared {
        pass: 1,
        number,
        table: table.into(),
        restart: false,
        range: KeyRange { after, up_to },
        seq: seq(7),
        bisecting: false,
        outcome: Outcome::Equal,
        rows: (3, 3),
        text: String::new(),
        differences: Vec::new(),
    }
}

fn closing(checks: u64, tables: &[&str]) -> PassClosing {
    PassClosing {
        pass: 1,
        seq: seq(9),
        checks,
        aborted: String::new(),
        outcome: Outcome::Equal,
        text: String::new(),
        tables: tables.iter().map(|t| (*t).to_owned()).collect(),
    }
}

fn begun() -> Prover {
    let mut prover = Prover::new();
    prover.begin(1, seq(5), Outcome::Equal, "", Instant::now());
    prover
}

fn proven() -> Prover {
    let mut prover = begun();
    prover.compared(check(1, "t", None, None)).unwrap();
    let verdict = prover.end(&closing(1, &["t"]), Instant::now()).unwrap();
    assert_eq!(verdict, Verdict::Equal);
    prover
}

fn reason(prover: &Prover) -> String {
    prover.proof().check(Instant::now(), MINUTE).unwrap_err()
}

#[test]
fn nothing_is_proven_at_the_start() {
    assert_eq!(reason(&Prover::new()), "not proven yet");
}

#[test]
fn a_pass_over_everything_is_a_proof() {
    let prover = proven();
    let report = prover.proof().check(Instant::now(), MINUTE).unwrap();
    assert_eq!((report.at_seq, report.rows), (seq(9), 3));
}

#[test]
fn an_empty_database_is_proven_by_its_schema_and_final_values() {
    let mut prover = begun();
    let verdict = prover.end(&closing(0, &[]), Instant::now()).unwrap();
    assert_eq!(verdict, Verdict::Equal);
}

#[test]
fn a_hole_in_a_table_or_a_table_left_out_is_inconclusive() {
    let mut prover = begun();
    prover.compared(check(1, "t", None, Some(4))).unwrap();
    prover.compared(check(2, "t", Some(5), None)).unwrap();
    let verdict = prover.end(&closing(2, &["t"]), Instant::now()).unwrap();
    assert_eq!(verdict, Verdict::Inconclusive);
    assert!(reason(&prover).contains("table t was not compared completely"));

    let mut prover = begun();
    prover.compared(check(1, "t", None, None)).unwrap();
    let verdict = prover.end(&closing(1, &["t", "u"]), Instant::now());
    assert_eq!(verdict.unwrap(), Verdict::Inconclusive);
}

#[test]
fn a_restarted_table_is_covered_by_what_comes_after_the_restart() {
    let mut prover = begun();
    prover.compared(check(1, "t", None, Some(4))).unwrap();
    let mut again = check(2, "t", Some(4), None);
    again.restart = true;
    prover.compared(again).unwrap();
    let verdict = prover.end(&closing(2, &["t"]), Instant::now()).unwrap();
    assert_eq!(verdict, Verdict::Inconclusive);
}

#[test]
fn an_error_silence_or_a_source_that_gives_up_is_inconclusive() {
    let mut prover = begun();
    let mut failed = check(1, "t", None, None);
    failed.outcome = Outcome::Failed;
    failed.text = "I/O error".into();
    prover.compared(failed).unwrap();
    let verdict = prover.end(&closing(1, &["t"]), Instant::now()).unwrap();
    assert_eq!(verdict, Verdict::Inconclusive);

    let mut prover = begun();
    prover.interrupt("the stream ended", seq(6), Instant::now());
    assert_eq!(reason(&prover), "inconclusive: the stream ended");

    let mut prover = begun();
    let mut given_up = closing(0, &[]);
    given_up.aborted = "no time".into();
    let verdict = prover.end(&given_up, Instant::now()).unwrap();
    assert_eq!(verdict, Verdict::Inconclusive);

    let mut prover = begun();
    let verdict = prover.end(&closing(1, &[]), Instant::now()).unwrap();
    assert_eq!(verdict, Verdict::Inconclusive);
}

#[test]
fn numbers_left_out_end_the_stream() {
    assert!(begun().compared(check(2, "t", None, None)).is_err());
    let mut other_pass = check(1, "t", None, None);
    other_pass.pass = 2;
    assert!(begun().compared(other_pass).is_err());
    assert!(Prover::new().compared(check(1, "t", None, None)).is_err());
    assert!(Prover::new().end(&closing(0, &[]), Instant::now()).is_err());
}

#[test]
fn a_difference_is_a_divergence_even_if_the_rest_failed() {
    let mut prover = begun();
    let mut unequal = check(1, "t", None, Some(4));
    unequal.outcome = Outcome::Unequal;
    prover.compared(unequal).unwrap();
    let mut listed = check(2, "t", None, Some(4));
    listed.bisecting = true;
    listed.outcome = Outcome::Unequal;
    listed.differences = vec![RowDifference {
        rowid: 3,
        kind: crate::check::DifferenceKind::Changed,
    }];
    prover.compared(listed).unwrap();
    let verdict = prover.end(&closing(2, &["t"]), Instant::now()).unwrap();
    assert_eq!(verdict, Verdict::Diverged);
    assert!(reason(&prover).contains("table t row 3 is changed here"));
}

#[test]
fn a_schema_that_differs_is_a_divergence() {
    let mut prover = Prover::new();
    let text = "index t_a is missing here";
    prover.begin(1, seq(5), Outcome::Unequal, text, Instant::now());
    let verdict = prover.end(&closing(0, &[]), Instant::now()).unwrap();
    assert_eq!(verdict, Verdict::Diverged);
    assert!(reason(&prover).contains(text));
}

#[test]
fn a_divergence_is_lifted_by_new_data_only() {
    let mut prover = Prover::new();
    prover.begin(1, seq(5), Outcome::Unequal, "differs", Instant::now());
    prover.end(&closing(0, &[]), Instant::now()).unwrap();
    prover.begin(1, seq(5), Outcome::Equal, "", Instant::now());
    let verdict = prover.end(&closing(0, &[]), Instant::now()).unwrap();
    assert_eq!(verdict, Verdict::Equal);
    assert!(reason(&prover).starts_with("diverged"));

    prover.forget("a snapshot was installed");
    assert!(reason(&prover).contains("a snapshot was installed"));
    prover.begin(1, seq(5), Outcome::Equal, "", Instant::now());
    prover.end(&closing(0, &[]), Instant::now()).unwrap();
    assert!(prover.proof().check(Instant::now(), MINUTE).is_ok());
}

#[test]
fn a_proof_ends_with_its_age_an_error_or_a_source_without_one() {
    let prover = proven();
    let later = Instant::now() + MINUTE * 2;
    assert!(prover.proof().check(later, MINUTE).is_err());

    let mut prover = proven();
    prover.void("the engine failed");
    assert_eq!(reason(&prover), "not proven since the engine failed");

    let mut prover = proven();
    prover.history_moved(true);
    assert!(prover.proof().check(Instant::now(), MINUTE).is_ok());
    prover.history_moved(false);
    assert!(prover.proof().check(Instant::now(), MINUTE).is_err());
}

#[test]
fn an_inconclusive_renewal_leaves_the_proof_before_it() {
    let mut prover = proven();
    prover.begin(2, seq(20), Outcome::Equal, "", Instant::now());
    prover.interrupt("the stream ended", seq(21), Instant::now());
    assert!(prover.proof().check(Instant::now(), MINUTE).is_ok());
}
