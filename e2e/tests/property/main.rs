//! The property: whatever clients do, every copy that followed the log ends equal.
//!
//! One round is one seed: random schemas, statements, transactions, rollbacks, mistakes and
//! schema changes on a primary that serves; one replica fed from it, at random moments; one
//! fed from that replica, from whose log it gets packed key lists; one that joins at the end
//! from position 0, and one that does so from the replica. Then the replica is promoted,
//! takes writes itself, and the others follow it. All must be equal, and C SQLite runs
//! the same statements as an oracle.
//!
//! `PROPERTY_ROUNDS=1000` runs more rounds, `PROPERTY_SEED=17` repeats one.

mod generator;
mod oracle;
mod round;

use oracle::Tally;

/// Rounds of an ordinary run.
const ROUNDS_DEFAULT: u64 = 40;
/// Statements of which the oracle has to have run at least this share.
const ORACLE_SHARE_MIN: f64 = 0.8;
/// Comparisons with the oracle that may find other rows; see `oracle` for why any may.
const ORACLE_DIFFERING_MAX: f64 = 0.02;

#[test]
fn every_copy_ends_equal_whatever_was_run() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    // A repeated round compares with the oracle after each statement and shows what differs.
    let (first, rounds) = match number("PROPERTY_SEED") {
        Some(seed) => (seed, 1),
        None => (1, number("PROPERTY_ROUNDS").unwrap_or(ROUNDS_DEFAULT)),
    };
    let mut tally = Tally::default();
    let mut failed = Vec::new();
    for seed in first..first + rounds {
        match round::run(seed) {
            Ok(of_round) => tally.add(of_round),
            Err(error) => {
                println!("{error:#}");
                failed.push(seed);
            }
        }
    }
    println!(
        "{rounds} rounds, {} statements, the oracle ran {:.1} %, {} of {} comparisons with it differ",
        tally.asked,
        tally.share() * 100.0,
        tally.differing,
        tally.comparisons
    );
    for (reason, count) in &tally.left_out {
        println!("  {count:6}  {reason}");
    }
    assert!(failed.is_empty(), "PROPERTY_SEED={failed:?}");
    assert!(
        tally.share() >= ORACLE_SHARE_MIN,
        "too little reached the oracle"
    );
    let differing = tally.differing as f64 / tally.comparisons.max(1) as f64;
    assert!(differing <= ORACLE_DIFFERING_MAX, "{differing}");
}
