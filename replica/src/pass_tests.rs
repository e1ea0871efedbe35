//! A planner and a book of proof, run against each other over tables in memory.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::check::DifferenceKind;
use crate::proof::{Compared, PassClosing, Prover, Verdict};

type Table = BTreeMap<i64, u64>;
type Side = BTreeMap<String, Table>;

/// Runs a pass to its end. `between` may change both sides after each step, as the log would.
struct Bench {
    source: Side,
    follower: Side,
    pass: Pass,
    prover: Prover,
    seq: u64,
    now: Instant,
}

impl Bench {
    fn new(source: Side, follower: Side) -> Self {
        let tables = source.keys().cloned().collect();
        Self {
            source,
            follower,
            pass: Pass::new(1, tables, PassLimits::default()),
            prover: Prover::new(),
            seq: 1,
            now: Instant::now(),
        }
    }

    fn run(&mut self, mut between: impl FnMut(&mut Self, u64)) -> Verdict {
        for round in 0..100_000 {
            between(self, round);
            if let Some(step) = self.pass.next(self.now) {
                self.step(step);
            }
            if self.pass.is_over() {
                let last = self.prover.proof().last.as_ref();
                return last.expect("a report").verdict;
            }
            self.seq += 1;
        }
        panic!("the pass does not end: {:?}", self.pass);
    }

    fn step(&mut self, step: Step) {
        let asked = compute(&self.source, Seq::new(self.seq), &step);
        let ticket = self.pass.asked(step.clone(), asked, self.now);
        let answer = self.answer(&step, &asked, ticket);
        self.pass.answered(answer, self.now).expect("it was asked");
    }

    fn answer(&mut self, step: &Step, asked: &Asked, ticket: Ticket) -> Answer {
        let mut answer = Answer {
            pass: ticket.pass,
            number: ticket.number,
            outcome: Outcome::Equal,
            rows: 0,
            text: String::new(),
            differences: Vec::new(),
            took: Duration::ZERO,
        };
        let table = match step {
            Step::Begin => {
                self.prover
                    .begin(1, asked.seq, Outcome::Equal, "", self.now);
                return answer;
            }
            Step::End => {
                let closing = PassClosing {
                    pass: ticket.pass,
                    seq: asked.seq,
                    checks: ticket.number - 1,
                    aborted: self.pass.failed().unwrap_or_default().into(),
                    outcome: Outcome::Equal,
                    text: String::new(),
                    tables: self.follower.keys().cloned().collect(),
                };
                self.prover.end(&closing, self.now).expect("it was begun");
                return answer;
            }
            Step::Tail { table, .. }
            | Step::Range { table, .. }
            | Step::Half { table, .. }
            | Step::Rows { table, .. } => table.clone(),
        };
        let ours = digest(&self.follower[&table], asked.range);
        if ours != asked.digest {
            answer.outcome = Outcome::Unequal;
        }
        answer.rows = ours.rows;
        if let Step::Rows { range, .. } = step {
            answer.differences = differences(&self.source[&table], &self.follower[&table], *range);
        }
        self.prover
            .compared(Compared {
                pass: ticket.pass,
                number: ticket.number,
                table,
                restart: ticket.restart,
                range: asked.range,
                seq: asked.seq,
                bisecting: ticket.bisecting,
                outcome: answer.outcome,
                rows: (asked.digest.rows, ours.rows),
                text: String::new(),
                differences: answer.differences.clone(),
            })
            .expect("in order");
        answer
    }

    fn named(&self) -> Vec<(String, i64, &'static str)> {
        let name = |d: &Difference| (d.table.clone(), d.row.rowid, d.row.kind.word());
        self.pass.differences().iter().map(name).collect()
    }
}

/// The source's side of a step, as the engine would compute it.
fn compute(side: &Side, seq: Seq, step: &Step) -> Asked {
    let mut last = None;
    let range = match step {
        Step::Begin | Step::End => KeyRange::ALL,
        Step::Tail { table, limits } => {
            last = side[table].keys().next_back().copied();
            match last {
                Some(last) if side[table].len() as u64 > limits.rows_max => KeyRange {
                    after: Some(last),
                    up_to: None,
                },
                _ => KeyRange::ALL,
            }
        }
        Step::Range {
            table,
            after,
            last,
            limits,
        } => cut(&side[table], *after, *last, limits.rows_max),
        Step::Half { table, range, rows } => {
            let end = range.up_to.unwrap_or(i64::MAX);
            let half = cut(&side[table], range.after, end, *rows);
            let reached = half.up_to == Some(end);
            if reached { *range } else { half }
        }
        Step::Rows { range, .. } => *range,
    };
    let table = match step {
        Step::Begin | Step::End => None,
        Step::Tail { table, .. }
        | Step::Range { table, .. }
        | Step::Half { table, .. }
        | Step::Rows { table, .. } => Some(table),
    };
    Asked {
        seq,
        range,
        digest: table.map_or(RangeDigest::default(), |t| digest(&side[t], range)),
        last,
        took: Duration::ZERO,
    }
}

fn cut(table: &Table, after: Option<i64>, last: i64, rows: u64) -> KeyRange {
    let range = KeyRange {
        after,
        up_to: Some(last),
    };
    let reached = rows_of(table, range).nth(rows as usize - 1);
    KeyRange {
        after,
        up_to: Some(reached.map_or(last, |(rowid, _)| *rowid)),
    }
}

fn rows_of(table: &Table, range: KeyRange) -> impl Iterator<Item = (&i64, &u64)> {
    table
        .iter()
        .filter(move |(rowid, _)| range.contains(**rowid))
}

fn digest(table: &Table, range: KeyRange) -> RangeDigest {
    let one = |(rowid, value): (&i64, &u64)| RangeDigest {
        rows: 1,
        hash: u128::from(*value) << 64 | u128::from(*rowid as u64),
    };
    rows_of(table, range)
        .map(one)
        .fold(RangeDigest::default(), RangeDigest::plus)
}

fn differences(source: &Table, follower: &Table, range: KeyRange) -> Vec<RowDifference> {
    let mut rowids: Vec<i64> = rows_of(source, range)
        .chain(rows_of(follower, range))
        .map(|(rowid, _)| *rowid)
        .collect();
    rowids.sort_unstable();
    rowids.dedup();
    let kind = |rowid: &i64| match (source.get(rowid), follower.get(rowid)) {
        (Some(_), None) => Some(DifferenceKind::Missing),
        (None, Some(_)) => Some(DifferenceKind::Extra),
        (a, b) => (a != b).then_some(DifferenceKind::Changed),
    };
    rowids
        .into_iter()
        .filter_map(|rowid| kind(&rowid).map(|kind| RowDifference { rowid, kind }))
        .take(DIFFERENCES_MAX)
        .collect()
}

fn table(rows: std::ops::Range<i64>) -> Table {
    rows.map(|rowid| (rowid * 3, 7)).collect()
}

fn side(tables: &[(&str, Table)]) -> Side {
    tables
        .iter()
        .map(|(name, table)| ((*name).to_owned(), table.clone()))
        .collect()
}

#[test]
fn equal_tables_are_proven_equal() {
    let tables = side(&[
        ("a", table(0..20_000)),
        ("b", Table::new()),
        ("c", table(0..5)),
    ]);
    let mut bench = Bench::new(tables.clone(), tables);
    assert_eq!(bench.run(|_, _| {}), Verdict::Equal);
    assert_eq!(bench.pass.rows(), 20_005);
    assert_eq!(bench.pass.tables(), (3, 3));
}

#[test]
fn a_changed_a_missing_and_an_extra_row_are_named() {
    let source = side(&[("a", table(0..20_000))]);
    let mut follower = source.clone();
    let rows = follower.get_mut("a").unwrap();
    rows.insert(300, 8);
    rows.remove(&30_000);
    rows.insert(45_001, 7);
    rows.insert(90_000, 7);
    let mut bench = Bench::new(source, follower);
    assert_eq!(bench.run(|_, _| {}), Verdict::Diverged);
    let mut named = bench.named();
    named.sort();
    let expected = [
        ("a".to_owned(), 300, "changed"),
        ("a".to_owned(), 30_000, "missing"),
        ("a".to_owned(), 45_001, "extra"),
        ("a".to_owned(), 90_000, "extra"),
    ];
    assert_eq!(named, expected);
}

#[test]
fn a_table_that_grows_faster_than_it_is_compared_does_not_make_the_pass_endless() {
    let tables = side(&[("a", table(0..10_000))]);
    let mut bench = Bench::new(tables.clone(), tables);
    let verdict = bench.run(|bench, round| {
        let first = 100_000 + round as i64 * 100_000;
        for side in [&mut bench.source, &mut bench.follower] {
            let rows = side.get_mut("a").unwrap();
            rows.extend((first..first + 20_000).map(|rowid| (rowid, 1)));
        }
        assert!(round < 20, "{:?}", bench.pass);
    });
    assert_eq!(verdict, Verdict::Equal);
}

#[test]
fn a_table_renamed_over_another_is_compared_again() {
    // `b` differs and is renamed to `a` after `a` was compared.
    let source = side(&[("a", table(0..10)), ("b", table(0..10))]);
    let mut follower = source.clone();
    follower.get_mut("b").unwrap().insert(3, 99);
    let mut bench = Bench::new(source, follower);
    let verdict = bench.run(|bench, round| {
        if round == 2 {
            for side in [&mut bench.source, &mut bench.follower] {
                let b = side.remove("b").unwrap();
                side.insert("a".into(), b);
            }
            bench.pass.tables_moved(&TableMoves {
                moved: ["a".to_owned(), "b".to_owned()].into(),
                tables: vec!["a".into()],
            });
        }
    });
    assert_eq!(verdict, Verdict::Diverged);
    assert_eq!(bench.named(), [("a".to_owned(), 3, "changed")]);
}

#[test]
fn a_step_that_fails_makes_the_pass_inconclusive() {
    let tables = side(&[("a", table(0..10))]);
    let mut bench = Bench::new(tables.clone(), tables);
    let verdict = bench.run(|bench, round| {
        if round == 1 {
            bench.pass.fail("I/O error");
        }
    });
    assert_eq!(verdict, Verdict::Inconclusive);
}

#[test]
fn a_step_that_was_spoiled_is_asked_again_and_everything_is_still_covered() {
    let mut source = side(&[("a", table(0..20_000)), ("b", table(0..3))]);
    let follower = source.clone();
    for spoiled_of in [2, 3, 5] {
        let mut bench = Bench::new(source.clone(), follower.clone());
        let mut asked = 0;
        let verdict = bench.run(|bench, _| {
            let Some(step) = bench.pass.next(bench.now) else {
                return;
            };
            asked += 1;
            if asked % spoiled_of == 1 {
                let figures = compute(&bench.source, Seq::new(bench.seq), &step);
                let ticket = bench.pass.asked(step, figures, bench.now);
                let answer = Answer {
                    pass: ticket.pass,
                    number: ticket.number,
                    outcome: Outcome::Again,
                    rows: 0,
                    text: String::new(),
                    differences: vec![],
                    took: Duration::ZERO,
                };
                bench.pass.answered(answer, bench.now).unwrap();
            }
        });
        let equal = bench.source == bench.follower;
        assert_eq!(verdict == Verdict::Equal, equal);
        assert_eq!(bench.named().len(), usize::from(!equal));
        source.get_mut("a").unwrap().insert(9_000, 8);
    }
}

#[test]
fn an_overdue_answer_ends_the_pass_and_an_unasked_one_the_stream() {
    let now = Instant::now();
    let limits = PassLimits::default();
    let mut pass = Pass::new(1, vec![], limits);
    let step = pass.next(now).unwrap();
    let asked = compute(&Side::new(), Seq::new(1), &step);
    pass.asked(step, asked, now);
    assert!(pass.next(now).is_none());
    assert!(!pass.expire(now));
    assert!(pass.expire(now + limits.answer_deadline * 2));
    assert!(pass.is_over());
    let answer = Answer {
        pass: 1,
        number: 5,
        outcome: Outcome::Equal,
        rows: 0,
        text: String::new(),
        differences: vec![],
        took: Duration::ZERO,
    };
    assert!(pass.answered(answer, now).is_err());
}

#[test]
fn a_pass_in_the_background_pauses_between_steps() {
    let now = Instant::now();
    let limits = PassLimits {
        duty_percent: 10,
        ..PassLimits::default()
    };
    let mut pass = Pass::new(1, vec!["a".into()], limits);
    let asked = Asked {
        seq: Seq::new(1),
        range: KeyRange::ALL,
        digest: RangeDigest::default(),
        last: None,
        took: Duration::from_millis(4),
    };
    let ticket = pass.asked(Step::Begin, asked, now);
    let answer = Answer {
        pass: ticket.pass,
        number: ticket.number,
        outcome: Outcome::Equal,
        rows: 0,
        text: String::new(),
        differences: vec![],
        took: Duration::from_millis(2),
    };
    pass.answered(answer, now).unwrap();
    assert!(pass.next(now).is_none());
    assert_eq!(pass.wake_at(), Some(now + Duration::from_millis(36)));
    assert!(pass.next(now + Duration::from_millis(36)).is_some());
}

proptest! {
    /// Rows change on both sides all the while, and some differ from the beginning: the pass
    /// says equal exactly if none of those is left.
    #[test]
    fn the_verdict_is_right_whatever_is_written_meanwhile(
        rows in prop::collection::btree_map(-50..50_i64, 0..3_u64, 0..60),
        planted in prop::collection::btree_map(-60..60_i64, 0..4_u64, 0..3),
        writes in prop::collection::vec((0..60_u64, -60..60_i64, 0..3_u64), 0..30),
    ) {
        let source = side(&[("a", rows.clone()), ("b", rows)]);
        let mut follower = source.clone();
        follower.get_mut("b").unwrap().extend(planted.clone());
        let mut bench = Bench::new(source, follower);
        bench.pass.range_rows = 4;
        let verdict = bench.run(|bench, round| {
            bench.pass.range_rows = 4;
            for (at, rowid, value) in &writes {
                if *at == round {
                    for side in [&mut bench.source, &mut bench.follower] {
                        side.get_mut("b").unwrap().insert(*rowid, *value);
                    }
                }
            }
        });
        let equal = bench.source == bench.follower;
        if verdict == Verdict::Equal {
            prop_assert!(equal);
        }
        if planted.is_empty() {
            prop_assert_eq!(verdict, Verdict::Equal);
        }
        if !equal {
            prop_assert_eq!(verdict, Verdict::Diverged);
        }
    }
}
