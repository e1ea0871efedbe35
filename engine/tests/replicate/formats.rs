//! The bytes of a batch, pinned: they are stored and cross between versions.

use tidegate_engine::batch::{BatchReader, BatchWriter, Header, Record};
use tidegate_engine::change::{Ddl, Interval, LogItem, Touched};
use tidegate_engine::finals::{HeaderValues, Sequence};
use tidegate_engine::triggers::Trigger;
use tidegate_engine::{Batch, Error, Seq, Spool, ValueRef};

fn small_batch() -> Batch {
    let spool = Spool::new(&std::env::temp_dir(), 1 << 20);
    let header = Header {
        from: Seq::new(1),
        to: Seq::new(300),
        committed_ms: -1,
    };
    let mut writer = BatchWriter::begin(spool, header).unwrap();
    let interval = Interval {
        from: Seq::new(1),
        to: Seq::new(9),
        touched: Touched::from([("t".to_owned(), vec![-2, 1, 200])]),
    };
    writer.item(&LogItem::Interval(interval)).unwrap();
    let ddl = Ddl {
        seq: Seq::new(10),
        sql: "DROP TABLE u".into(),
    };
    writer.item(&LogItem::Ddl(ddl)).unwrap();
    writer
        .table("t", &["a".to_owned(), "b".to_owned()])
        .unwrap();
    let row = [ValueRef::Integer(-3), ValueRef::Real(-0.0)];
    writer.row(1, row.into_iter()).unwrap();
    let row = [ValueRef::Text(b"x\0"), ValueRef::Null];
    writer.row(200, row.into_iter()).unwrap();
    let sequence = Sequence {
        name: "t".into(),
        value: 7.into(),
    };
    writer.sequences(&[sequence]).unwrap();
    let values = HeaderValues {
        user_version: 1,
        application_id: -1,
    };
    writer.pragmas(values).unwrap();
    let trigger = Trigger {
        name: "x".into(),
        sql: "CREATE".into(),
    };
    writer.triggers(&[trigger]).unwrap();
    writer.finish().unwrap()
}

fn bytes_of(spool: &Spool) -> Vec<u8> {
    spool.part(0, usize::MAX).unwrap().unwrap().bytes
}

#[test]
fn the_bytes_of_format_one_do_not_change() {
    let bytes = bytes_of(&small_batch().spool);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = concat!(
        "54474231",
        "010401ac0201",
        "020b0109010101740303",
        "03c701",
        "030e0a0c44524f50205441424c452075",
        "04070174",
        "0201610162",
        "050c020105",
        "020000000000000080",
        "05079003",
        "03027800",
        "00",
        "060501017401",
        "0e",
        "07020201",
        "080a01",
        "0178",
        "06435245415445",
    );
    assert_eq!(hex[..expected.len()], *expected, "{hex}");
    assert_eq!(
        hex.len() - expected.len(),
        2 * (2 + 1 + 16),
        "the end record"
    );
    assert_eq!(hex[expected.len()..][..6], *"091102");
}

#[test]
fn records_come_back_as_they_were_written() {
    let batch = small_batch();
    let (mut reader, header) = BatchReader::open(&batch.spool).unwrap();
    assert_eq!((header.from, header.to), (batch.from, batch.to));
    let mut names = Vec::new();
    loop {
        let record = reader.read().unwrap();
        let name = format!("{record:?}");
        names.push(name.split(['(', ' ']).next().unwrap().to_owned());
        if let Record::Row { rowid: 200, values } = &record {
            assert_eq!(values, &[ValueRef::Text(b"x\0"), ValueRef::Null]);
        }
        if record == (Record::End { rows: 2 }) {
            break;
        }
    }
    let expected = "Item Item Table Row Row Sequences Pragmas Triggers End";
    assert_eq!(names.join(" "), expected);
}

#[test]
fn records_out_of_order_or_unknown_stop_the_reader() {
    let end = |bytes: &[u8]| {
        let mut spool = Spool::new(&std::env::temp_dir(), 1 << 20);
        spool.append(bytes).unwrap();
        let (mut reader, _) = BatchReader::open(&spool)?;
        loop {
            if let Record::End { .. } = reader.read()? {
                return Ok(());
            }
        }
    };
    let start = b"TGB1\x01\x03\x01\x02\x00".to_vec();
    let cases: [&[u8]; 7] = [
        &[99, 0],
        &[5, 1, 0],
        &[1, 3, 1, 2, 0],
        &[7, 2, 0, 0, 4, 3, 1, 116, 0],
        &[3, 255, 255, 255, 255, 255, 255, 255, 255, 127],
        &[2, 4, 0, 1, 2, 0],
        b"TGB2",
    ];
    for case in cases {
        let bytes = match case {
            b"TGB2" => case.to_vec(),
            _ => [&start, case].concat(),
        };
        assert!(matches!(end(&bytes), Err(Error::Format(_))), "{case:?}");
    }
}
