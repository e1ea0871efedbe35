//! A client of the replica writes: its statements run on the primary, and it reads what it
//! wrote.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tidegate_e2e::Pair;
use tidegate_e2e::client::{Client, Outcome, as_integer, blob, integer};
use tidegate_e2e::pair::READY_LIMIT;
use tidegate_e2e::proxy::{Conditions, Proxy};
use tidegate_e2e::stream::Stream;

/// Clients that write at a time.
const CLIENTS: i64 = 16;
/// Rows of each.
const ROWS: i64 = 40;
/// No client waits longer than this, whatever happens to the primary.
const HANG_LIMIT: Duration = Duration::from_secs(40);

fn table() -> Vec<String> {
    vec!["CREATE TABLE t (id INTEGER PRIMARY KEY, v UNIQUE)".to_owned()]
}

/// A pair whose replica reaches the primary through a proxy.
async fn pair_behind_proxy() -> Result<(Pair, Proxy)> {
    let mut proxy = None;
    let pair = Pair::start_by_way_of(&table(), &[], async |options| {
        let started = Proxy::start(options.ports[1]).await?;
        let url = started.url();
        proxy = Some(started);
        Ok(url)
    })
    .await?;
    Ok((pair, proxy.expect("started with the pair")))
}

/// The only number of a query's answer.
async fn number(client: &Client, sql: &str) -> Result<i64> {
    let rows = client.execute(sql, &[]).await.rows()?;
    as_integer(&rows[0][0]).context("an integer")
}

async fn number_in(stream: &mut Stream, sql: &str) -> Result<i64> {
    let rows = stream.execute(sql, &[]).await.rows()?;
    as_integer(&rows[0][0]).context("an integer")
}

fn code(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Failed(code, _) => code,
        other => panic!("{other:?} is not a failure"),
    }
}

#[tokio::test]
async fn what_is_written_through_a_replica_is_read_there_at_once() -> Result<()> {
    let pair = Pair::start(&[], &[]).await?;
    let replica = pair.replica.client();
    let create = "CREATE TABLE t (id INTEGER PRIMARY KEY, v UNIQUE)";
    replica.execute(create, &[]).await.rows()?;
    for id in 1..=30 {
        let insert = "INSERT INTO t VALUES (?, ?)";
        let args = [integer(id), integer(-id)];
        replica.execute(insert, &args).await.rows()?;
        // Another session, so only the node's own copy can answer.
        ensure!(number(&replica, "SELECT count(*) FROM t").await? == id);
    }
    let outcomes = replica
        .pipeline(&[
            ("INSERT INTO t (v) VALUES ('a'), ('b')", &[]),
            ("SELECT last_insert_rowid()", &[]),
            ("SELECT changes()", &[]),
            ("UPDATE t SET v = v || '!' WHERE id > 30", &[]),
            ("SELECT changes() + last_insert_rowid()", &[]),
        ])
        .await;
    let numbers: Vec<_> = [1, 2, 4]
        .iter()
        .map(|&i| outcomes[i].clone().rows().map(|rows| rows[0][0].clone()))
        .collect::<Result<_>>()?;
    ensure!(
        numbers == [integer(32), integer(2), integer(34)],
        "{outcomes:?}"
    );
    pair.stop_and_compare()
}

#[tokio::test]
async fn a_value_larger_than_any_message_passes_both_ways() -> Result<()> {
    let pair = Pair::start(&table(), &[]).await?;
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    let insert = "INSERT INTO t VALUES (1, ?) RETURNING v";
    let outcome = pair.replica.client().execute(insert, &[blob(&bytes)]).await;
    ensure!(outcome.rows()? == [[blob(&bytes)]]);
    pair.stop_and_compare()
}

#[tokio::test]
async fn a_transaction_through_a_replica_is_whole_and_alone() -> Result<()> {
    let pair = Pair::start(&table(), &[]).await?;
    let replica = pair.replica.client();
    for (end, rows) in [("ROLLBACK", 0), ("COMMIT", 2)] {
        let mut stream = replica.stream();
        stream.execute("BEGIN", &[]).await.rows()?;
        for id in 1..=2 {
            let insert = "INSERT INTO t VALUES (?, 1 - ?)";
            let args = [integer(id), integer(id)];
            stream.execute(insert, &args).await.rows()?;
            ensure!(number_in(&mut stream, "SELECT count(*) FROM t").await? == id);
            ensure!(number(&replica, "SELECT count(*) FROM t").await? == 0);
        }
        stream.execute(end, &[]).await.rows()?;
        ensure!(number(&replica, "SELECT count(*) FROM t").await? == rows);
        stream.close().await;
    }
    let insert = |id: i64| {
        (
            "INSERT INTO t VALUES (?1, ?1)".to_owned(),
            vec![integer(id)],
        )
    };
    let batch = replica.transaction(&[insert(3), insert(4)]).await;
    ensure!(batch.is_acknowledged(), "{batch:?}");
    ensure!(number(&replica, "SELECT count(*) FROM t").await? == 4);
    let batch = replica.transaction(&[insert(5), insert(4)]).await;
    ensure!(code(&batch).starts_with("SQLITE_CONSTRAINT"), "{batch:?}");
    ensure!(number(&replica, "SELECT count(*) FROM t").await? == 4);
    // Left open: the primary must not keep it, or nobody could write.
    let mut left = replica.stream();
    left.execute("BEGIN IMMEDIATE", &[]).await.rows()?;
    left.execute("DELETE FROM t", &[]).await.rows()?;
    left.close().await;
    let primary = pair.primary.client();
    primary
        .execute("INSERT INTO t VALUES (9, 9)", &[])
        .await
        .rows()?;
    ensure!(number(&primary, "SELECT count(*) FROM t").await? == 5);
    pair.stop_and_compare()
}

#[tokio::test]
async fn errors_arrive_with_the_codes_of_the_primary() -> Result<()> {
    let pair = Pair::start(&table(), &[]).await?;
    let replica = pair.replica.client();
    let outcomes = replica
        .pipeline(&[
            ("INSERT INTO t VALUES (1, 1)", &[]),
            ("INSERT INTO t VALUES (2, 1)", &[]),
            ("INSERT INTO nowhere VALUES (1)", &[]),
            ("ATTACH 'x' AS y", &[]),
            ("COMMIT", &[]),
            ("BEGIN READONLY", &[]),
            ("INSERT INTO t VALUES (3, 3)", &[]),
            ("SELECT count(*) FROM t", &[]),
            ("COMMIT", &[]),
        ])
        .await;
    let codes: Vec<_> = [1, 2, 3, 4, 6]
        .iter()
        .map(|&i| code(&outcomes[i]))
        .collect();
    let expected = [
        "SQLITE_CONSTRAINT_UNIQUE",
        "SQLITE_ERROR",
        "TIDEGATE_REFUSED",
        "SQLITE_ERROR",
        "SQLITE_READONLY",
    ];
    ensure!(codes == expected, "{outcomes:?}");
    ensure!(outcomes[7].clone().rows()? == [[integer(1)]]);
    pair.stop_and_compare()
}

#[tokio::test]
async fn foreign_keys_are_enforced_as_the_session_says() -> Result<()> {
    let tables = [
        "CREATE TABLE a (id INTEGER PRIMARY KEY)".to_owned(),
        "CREATE TABLE b (a INTEGER REFERENCES a (id))".to_owned(),
    ];
    let pair = Pair::start(&tables, &[]).await?;
    let orphan = ("INSERT INTO b VALUES (1)", [].as_slice());
    let outcomes = pair
        .replica
        .client()
        .pipeline(&[orphan, ("PRAGMA foreign_keys = OFF", &[]), orphan])
        .await;
    ensure!(
        code(&outcomes[0]) == "SQLITE_CONSTRAINT_FOREIGNKEY",
        "{outcomes:?}"
    );
    ensure!(outcomes[2].is_acknowledged(), "{outcomes:?}");
    pair.stop_and_compare()
}

#[tokio::test]
async fn a_script_that_writes_runs_as_a_whole() -> Result<()> {
    let pair = Pair::start(&table(), &[]).await?;
    let replica = pair.replica.client();
    let script = "BEGIN; INSERT INTO t VALUES (1, 1); INSERT INTO t VALUES (2, 2); COMMIT;";
    let requests = json!([{"type": "sequence", "sql": script}, {"type": "close"}]);
    let body = json!({"baton": null, "requests": requests});
    let (_, reply) = replica.post("/v3/pipeline", &body).await?;
    ensure!(reply["results"][0]["type"] == "ok", "{reply}");
    ensure!(number(&replica, "SELECT count(*) FROM t").await? == 2);
    pair.stop_and_compare()
}

#[tokio::test]
async fn many_clients_write_through_a_replica() -> Result<()> {
    let pair = Pair::start(&table(), &[]).await?;
    let clients = (0..CLIENTS).map(|client| {
        let replica = pair.replica.client();
        tokio::spawn(async move {
            for row in 0..ROWS {
                let id = [integer(client * ROWS + row)];
                let insert = "INSERT INTO t VALUES (?1, ?1)";
                replica.execute(insert, &id).await.rows()?;
                let found = replica.execute("SELECT id FROM t WHERE v = ?", &id).await;
                ensure!(found.rows()?.len() == 1, "a client does not read its write");
            }
            Ok(())
        })
    });
    let clients: Vec<_> = clients.collect();
    for client in clients {
        client.await??;
    }
    let count = number(&pair.replica.client(), "SELECT count(*) FROM t").await?;
    ensure!(count == CLIENTS * ROWS);
    pair.stop_and_compare()
}

#[tokio::test]
async fn a_reply_lost_on_its_way_is_indeterminate_and_not_repeated() -> Result<()> {
    let (mut pair, proxy) = pair_behind_proxy().await?;
    let replica = pair.replica.client();
    let mut stream = replica.stream();
    stream.execute("BEGIN", &[]).await.rows()?;
    // Leaves a session open for the next statement, which is then sent at once.
    replica
        .execute("INSERT INTO t VALUES (1, 1)", &[])
        .await
        .rows()?;
    proxy.set(Conditions {
        swallow_replies: true,
        ..Conditions::default()
    });
    let asked = {
        let replica = replica.clone();
        tokio::spawn(async move { replica.execute("INSERT INTO t VALUES (2, 2)", &[]).await })
    };
    let primary = pair.primary.client();
    pair.primary
        .wait_for("to carry the insert out", READY_LIMIT, async || {
            number(&primary, "SELECT count(*) FROM t")
                .await
                .is_ok_and(|n| n == 2)
        })
        .await?;
    proxy.set(Conditions::loud());
    let outcome = asked.await?;
    ensure!(matches!(outcome, Outcome::Indeterminate(_)), "{outcome:?}");
    // What was open is gone, and does not go on outside of its transaction.
    let insert = stream.execute("INSERT INTO t VALUES (3, 3)", &[]).await;
    ensure!(code(&insert) == "STREAM_LOST", "{insert:?}");
    let insert = stream.execute("INSERT INTO t VALUES (4, 4)", &[]).await;
    ensure!(code(&insert) == "STREAM_LOST", "{insert:?}");
    stream.execute("ROLLBACK", &[]).await.rows()?;
    let insert = stream.execute("INSERT INTO t VALUES (5, 5)", &[]).await;
    ensure!(code(&insert) == "TIDEGATE_NOT_READY", "{insert:?}");
    // Reads go on meanwhile.
    number(&replica, "SELECT count(*) FROM t").await?;
    proxy.heal();
    pair.wait_same("SELECT group_concat(id) FROM t", READY_LIMIT)
        .await?;
    ensure!(number(&replica, "SELECT count(*) FROM t").await? == 2);
    pair.stop_and_compare()
}

#[tokio::test]
async fn a_primary_killed_in_the_middle_leaves_nobody_waiting() -> Result<()> {
    let mut pair = Pair::start(&table(), &[]).await?;
    let (told, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (replica, told) = (pair.replica.client(), told.clone());
            tokio::spawn(async move {
                let mut outcomes = Vec::new();
                for id in client * 100_000.. {
                    let insert = "INSERT INTO t VALUES (?1, ?1)";
                    let started = Instant::now();
                    let outcome = replica.execute(insert, &[integer(id)]).await;
                    assert!(started.elapsed() < HANG_LIMIT, "{outcome:?}");
                    told.send(()).ok();
                    let ended = !outcome.is_acknowledged();
                    outcomes.push((id, outcome));
                    if ended {
                        break;
                    }
                }
                outcomes
            })
        })
        .collect();
    for _ in 0..CLIENTS * 10 {
        begun.recv().await.context("clients write")?;
    }
    pair.primary.kill()?;
    let mut outcomes = Vec::new();
    for client in clients {
        outcomes.extend(client.await?);
    }
    pair.primary.spawn()?;
    pair.primary.wait_ready(READY_LIMIT).await?;
    let primary = pair.primary.client();
    let mut unknown = 0;
    for (id, outcome) in outcomes {
        let count = format!("SELECT count(*) FROM t WHERE id = {id}");
        let stored = number(&primary, &count).await?;
        match outcome {
            Outcome::Acknowledged(_) => ensure!(stored == 1, "{id} was acknowledged"),
            Outcome::Failed(code, text) => {
                ensure!(code == "TIDEGATE_NOT_READY", "{code}: {text}");
                ensure!(stored == 0, "{id} failed");
            }
            Outcome::Indeterminate(_) => unknown += 1,
        }
    }
    println!("{unknown} of {CLIENTS} clients do not know");
    // The way to the primary is found again.
    let replica = pair.replica.client();
    pair.replica
        .wait_for("to forward again", READY_LIMIT, async || {
            let delete = replica.execute("DELETE FROM t WHERE id < 0", &[]).await;
            delete.is_acknowledged()
        })
        .await?;
    pair.wait_same("SELECT count(*) FROM t", READY_LIMIT)
        .await?;
    pair.stop_and_compare()
}

#[tokio::test]
async fn an_answer_before_its_position_arrived_says_so() -> Result<()> {
    let (mut pair, proxy) = pair_behind_proxy().await?;
    let replica = pair.replica.client();
    replica
        .execute("INSERT INTO t VALUES (1, 1)", &[])
        .await
        .rows()?;
    // A slow link, and before the row a large one.
    proxy.set(Conditions::slow(100_000));
    pair.execute(&["INSERT INTO t VALUES (2, randomblob(1500000))".to_owned()])
        .await?;
    let body = json!({"baton": null, "requests": [
        {"type": "execute", "stmt": {"sql": "INSERT INTO t VALUES (3, 3)"}},
        {"type": "execute", "stmt": {"sql": "SELECT count(*) FROM t"}},
        {"type": "close"},
    ]});
    let request = reqwest::Client::new().post(format!("{}/v3/pipeline", replica.url()));
    let answer = request.body(body.to_string()).send().await?;
    let applied = answer.headers().get("tidegate-applied").cloned();
    let reply: Value = serde_json::from_str(&answer.text().await?)?;
    ensure!(applied.is_some_and(|word| word == "false"), "{reply}");
    // The session itself goes on reading what it wrote: on the primary.
    let count = &reply["results"][1]["response"]["result"]["rows"][0][0];
    ensure!(*count == integer(3), "{reply}");
    ensure!(number(&replica, "SELECT count(*) FROM t").await? == 1);
    proxy.heal();
    pair.wait_same("SELECT count(*) FROM t", READY_LIMIT)
        .await?;
    pair.stop_and_compare()
}
