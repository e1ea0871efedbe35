//! What leaves comes back the same, what is wrong is named, and nothing is too large.

use prost::Message;
use tidegate_engine::digest::{KeyRange, RangeDigest};
use tidegate_proto::{MESSAGE_BYTES_MAX, PART_BYTES_MAX};

use super::*;
use crate::history::{OPENINGS_MAX, Standing};
use crate::ids::{BootId, NodeId};
use crate::intake::{BatchEnd, PartHead};
use crate::pass::LISTED_ROWS_MAX;

fn longest_history() -> History {
    let openings = (1..=OPENINGS_MAX as u64).map(|i| Opening {
        epoch: Epoch::new(u64::MAX),
        nonce: Nonce::new([255; 16]),
        first_seq: Seq::new(i64::MAX as u64 - 10_000 + i),
        node: "n".repeat(NODE_ID_BYTES_MAX),
        opened_ms: u64::MAX,
        why: "ä".repeat(1_000),
    });
    History::new(openings.collect()).unwrap()
}

fn hello(history: History) -> Hello {
    Hello {
        protocol_version: 1,
        node: NodeId::new("n2").unwrap(),
        boot: BootId::new([9; 16]),
        standing: Standing {
            cluster: Some(ClusterId::from_bytes([1; 16])),
            history,
            seq: Seq::new(7),
        },
    }
}

fn part_head(end: Option<BatchEnd>) -> PartHead {
    PartHead {
        from: Seq::new(i64::MAX as u64 - 1),
        to: Seq::new(i64::MAX as u64),
        offset: u64::MAX,
        crc32c: u32::MAX,
        end,
    }
}

fn check(rows: Option<Vec<(i64, u128)>>) -> Check {
    Check {
        pass: 3,
        number: 4,
        table: "t".into(),
        restart: true,
        range: KeyRange {
            after: Some(i64::MIN),
            up_to: None,
        },
        seq: Seq::new(5),
        digest: RangeDigest { rows: 6, hash: 7 },
        rows,
        bisecting: true,
    }
}

fn decode_follower(message: pb::FollowerMessage) -> Result<FromFollower> {
    FromFollower::decode(message)
}

#[test]
fn the_longest_handshake_and_the_largest_part_fit_into_a_message() {
    let hello = hello(longest_history()).encode();
    assert!(
        hello.encoded_len() <= MESSAGE_BYTES_MAX,
        "{}",
        hello.encoded_len()
    );

    let end = BatchEnd {
        total_bytes: u64::MAX,
        hash: u128::MAX,
        committed_ms: u64::MAX,
    };
    let part = batch_part(&part_head(Some(end)), vec![0; PART_BYTES_MAX].into());
    assert!(part.encoded_len() <= MESSAGE_BYTES_MAX);

    let mut check = check(Some(vec![(i64::MIN, u128::MAX); LISTED_ROWS_MAX as usize]));
    check.table = "t".repeat(compare::NAME_BYTES_MAX);
    assert!(check.encode().encoded_len() <= MESSAGE_BYTES_MAX);
}

#[test]
fn digests_of_single_objects_are_left_out_when_they_would_not_fit() {
    let object = NamedDigest {
        kind: "table".into(),
        name: "n".repeat(1_000),
        hash: 1,
    };
    let begin = |count| PassBegin {
        pass: 1,
        seq: Seq::new(1),
        schema_hash: 1,
        finals_hash: 2,
        tables: 3,
        objects: vec![object.clone(); count],
    };
    assert!(begin(100).encode().encoded_len() > 100_000);
    assert!(begin(10_000).encode().encoded_len() < 1_000);
}

#[test]
fn a_hello_comes_back_as_it_left() {
    let sent = hello(longest_history());
    let Ok(FromFollower::Hello(back)) = decode_follower(sent.encode()) else {
        panic!("not a hello");
    };
    assert_eq!(back.node, sent.node);
    assert_eq!(back.boot, sent.boot);
    assert_eq!(back.standing.seq, sent.standing.seq);
    let openings = back.standing.history.openings();
    assert_eq!(openings.len(), OPENINGS_MAX);
    assert_eq!(openings[0].why, "ä".repeat(100));
}

#[test]
fn a_check_comes_back_as_it_left() {
    for rows in [None, Some(vec![]), Some(vec![(-1, 2), (3, 4)])] {
        let sent = check(rows);
        let Ok(FromSource::Check(back)) = FromSource::decode(sent.encode()) else {
            panic!("not a check");
        };
        assert_eq!(format!("{back:?}"), format!("{sent:?}"));
    }
}

#[test]
fn what_is_wrong_is_named() {
    let mut wrong = Vec::new();
    let mut hello_with = |change: fn(&mut pb::Hello)| {
        let mut message = hello(History::default()).encode();
        if let Some(pb::follower_message::Kind::Hello(hello)) = &mut message.kind {
            change(hello);
        }
        let error = decode_follower(message).expect_err("it is wrong");
        wrong.push(error.to_string());
    };
    hello_with(|hello| hello.node_id = "N 1".into());
    hello_with(|hello| hello.cluster_id = "x".into());
    hello_with(|hello| hello.boot_id = vec![1, 2]);
    hello_with(|hello| hello.applied_seq = u64::MAX);
    hello_with(|hello| {
        hello.cluster_id.clear();
        hello.history.push(pb::Opening {
            nonce: vec![0; 16],
            ..pb::Opening::default()
        });
    });
    let fields = [
        "node_id",
        "cluster_id",
        "boot_id",
        "applied_seq",
        "cluster_id",
    ];
    for (error, field) in wrong.iter().zip(fields) {
        assert!(error.starts_with(field), "{error}");
    }
}

#[test]
fn an_unknown_kind_ends_the_stream() {
    assert!(FromSource::decode(pb::SourceMessage { kind: None }).is_err());
    assert!(FromFollower::decode(pb::FollowerMessage { kind: None }).is_err());
}

#[test]
fn a_batch_that_leads_nowhere_or_an_empty_part_is_not_one() {
    let mut head = part_head(None);
    let is_wrong = |head: &PartHead, data: &'static [u8]| {
        FromSource::decode(batch_part(head, data.into())).is_err()
    };
    assert!(!is_wrong(&head, b"x"));
    assert!(is_wrong(&head, b""));
    head.from = head.to;
    assert!(is_wrong(&head, b"x"));
}
