use super::*;

const LIMITS: Limits = Limits {
    keep_rows: 500_000,
    keep_age: Duration::from_secs(60),
};

fn log(head: u64, floor: u64) -> Log {
    Log {
        head: Seq::new(head),
        floor: Seq::new(floor),
        claimed: Seq::new(floor),
        source: Above::Nobody,
    }
}

fn below(head: u64, floor: u64, source: u64) -> Log {
    Log {
        source: Above::Source(Seq::new(source)),
        ..log(head, floor)
    }
}

fn slot(name: &str, from: u64, now: Instant) -> SlotView {
    SlotView {
        node: NodeId::new(name).unwrap(),
        held: Held {
            from: Seq::new(from),
            state: SlotState::Active,
            durable: true,
        },
        connected: true,
        heard: now,
    }
}

fn given_up(name: &str, from: u64, now: Instant) -> SlotView {
    let mut slot = slot(name, from, now);
    slot.held.state = SlotState::NeedsSnapshot;
    slot
}

fn away(slot: SlotView) -> SlotView {
    SlotView {
        connected: false,
        ..slot
    }
}

fn up_to(log: Log, slots: &[SlotView]) -> Option<u64> {
    let decision = decide(log, slots, &LIMITS, Instant::now());
    decision.up_to.map(Seq::get)
}

#[test]
fn without_a_follower_a_tail_is_kept() {
    assert_eq!(up_to(log(1_000_000, 0), &[]), Some(1_000_000 - TAIL_ROWS));
    assert_eq!(up_to(log(TAIL_ROWS, 0), &[]), None);
    assert_eq!(up_to(log(0, 0), &[]), None);
    let tight = Limits {
        keep_rows: 100,
        ..LIMITS
    };
    let decision = decide(log(1_000, 0), &[], &tight, Instant::now());
    assert_eq!(decision.up_to, Some(Seq::new(900)));
}

#[test]
fn the_follower_that_is_furthest_behind_decides_and_the_tail_stays() {
    let now = Instant::now();
    let slots = [
        slot("n2", 700_000, now),
        away(slot("n3", 600_000, now)),
        slot("n4", 990_000, now),
    ];
    assert_eq!(up_to(log(1_000_000, 0), &slots), Some(600_000));
    let level = [slot("n2", 1_000_000, now)];
    assert_eq!(
        up_to(log(1_000_000, 0), &level),
        Some(1_000_000 - TAIL_ROWS)
    );
}

#[test]
fn a_small_step_waits_for_company() {
    let now = Instant::now();
    let slots = [slot("n2", 600_000, now)];
    let step = |floor| up_to(log(1_000_000, floor), &slots);
    assert_eq!(step(600_000 - STEP_ROWS), Some(600_000));
    assert_eq!(step(600_001 - STEP_ROWS), None);
    // A slot below the floor (its node was turned away) holds what is left.
    assert_eq!(step(900_000), None);
}

#[test]
fn what_was_begun_is_finished_chunk_by_chunk() {
    let now = Instant::now();
    let begun = Log {
        claimed: Seq::new(600_000),
        ..log(1_000_000, 599_000)
    };
    let level = [slot("n2", 600_000, now)];
    assert_eq!(up_to(begun, &level), Some(600_000));
    let late = [given_up("n2", 599_500, now)];
    assert_eq!(decide(begun, &late, &LIMITS, now).take_back, []);
}

#[test]
fn a_slot_past_a_limit_is_marked_first_and_holds_until_then() {
    let now = Instant::now();
    let far = slot("far", 499_999, now);
    let near = slot("near", 950_000, now);
    let decision = decide(
        log(1_000_000, 0),
        &[far.clone(), near.clone()],
        &LIMITS,
        now,
    );
    assert_eq!(decision.give_up.len(), 1);
    assert_eq!(decision.give_up[0].0, far.node);
    assert!(decision.give_up[0].1.contains("500001 changes"));
    assert_eq!(decision.up_to, Some(far.held.from), "not past it yet");
    let marked = [given_up("far", 499_999, now), near.clone()];
    let decision = decide(log(1_000_000, 0), &marked, &LIMITS, now);
    assert_eq!(decision.give_up, []);
    assert_eq!(decision.up_to, Some(near.held.from));
}

#[test]
fn only_a_follower_that_is_away_and_lacks_something_grows_old() {
    let then = Instant::now();
    let now = then + Duration::from_secs(61);
    let gives_up = |slot: SlotView, now| {
        let decision = decide(log(1_000_000, 0), &[slot], &LIMITS, now);
        !decision.give_up.is_empty()
    };
    assert!(gives_up(away(slot("n2", 999_999, then)), now));
    assert!(!gives_up(away(slot("n2", 1_000_000, then)), now));
    assert!(!gives_up(slot("n2", 999_999, then), now));
    let in_time = then + LIMITS.keep_age;
    assert!(!gives_up(away(slot("n2", 999_999, then)), in_time));
}

#[test]
fn a_follower_that_made_it_nevertheless_holds_the_log_again() {
    let now = Instant::now();
    let takes_back = |slot: SlotView, floor| {
        let decision = decide(log(1_000_000, floor), &[slot], &LIMITS, now);
        !decision.take_back.is_empty()
    };
    assert!(takes_back(given_up("n2", 700_000, now), 700_000));
    assert!(
        !takes_back(given_up("n2", 700_000, now), 700_001),
        "too late"
    );
    assert!(!takes_back(away(given_up("n2", 700_000, now)), 0));
    assert!(
        !takes_back(given_up("n2", 499_999, now), 0),
        "still too far"
    );
    // It holds from the moment of the decision.
    let slots = [given_up("n2", 700_000, now)];
    assert_eq!(up_to(log(1_000_000, 0), &slots), Some(700_000));
}

#[test]
fn a_replica_keeps_what_its_source_keeps_and_what_its_own_followers_need() {
    let now = Instant::now();
    assert_eq!(up_to(below(1_000, 0, 0), &[]), None, "it was not told");
    assert_eq!(up_to(below(1_000, 0, 700), &[]), Some(700));
    assert_eq!(up_to(below(1_000, 699, 700), &[]), Some(700));
    assert_eq!(up_to(below(1_000, 700, 700), &[]), None);
    // The source is ahead of what has arrived here.
    assert_eq!(up_to(below(1_000, 0, 5_000), &[]), Some(1_000));
    let own = [away(slot("n3", 300, now))];
    assert_eq!(up_to(below(1_000, 0, 700), &own), Some(300));
    // A source with a lower floor than this node: nothing comes back.
    assert_eq!(up_to(below(1_000, 700, 200), &[]), None);
}
