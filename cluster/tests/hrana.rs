//! Hrana over a real socket, by the letter: what clients send and what they must see.

mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::{CLUSTER, Node, execute, integer};

#[tokio::test(flavor = "multi_thread")]
async fn each_request_of_a_pipeline_is_answered_and_an_error_stops_nothing() {
    let node = Node::start().await;
    let results = node
        .run(&[
            "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)",
            "INSERT INTO t (v) VALUES ('a'), ('b')",
            "SELECT * FROM nowhere",
            "SELECT id, v FROM t ORDER BY id",
        ])
        .await;
    let insert = &results[1]["response"]["result"];
    assert_eq!(insert["affected_row_count"], 2);
    assert_eq!(insert["last_insert_rowid"], "2");
    assert_eq!(results[2]["type"], "error");
    assert_eq!(results[2]["error"]["code"], "SQLITE_ERROR");
    let select = &results[3]["response"]["result"];
    assert_eq!(
        select["cols"][0],
        json!({"name": "id", "decltype": "INTEGER"})
    );
    assert_eq!(select["rows"][1][1], json!({"type": "text", "value": "b"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_find_out_which_versions_are_spoken() {
    let node = Node::start().await;
    for (path, status) in [
        ("/v2", 200),
        ("/v3", 200),
        ("/v3-protobuf", 404),
        ("/version", 200),
    ] {
        let answer = node.http.get(format!("{}{path}", node.url)).send().await;
        assert_eq!(
            answer.expect("an answer").status().as_u16(),
            status,
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_value_is_stored_and_read_back_exactly() {
    let node = Node::start().await;
    node.run(&["CREATE TABLE v (id INTEGER PRIMARY KEY, x)"])
        .await;
    let values = json!([
        {"type": "null"},
        {"type": "integer", "value": "9223372036854775807"},
        {"type": "integer", "value": "-9223372036854775808"},
        {"type": "float", "value": -0.0},
        {"type": "float", "value": 1.0},
        {"type": "float", "value": 5e-324},
        {"type": "text", "value": ""},
        {"type": "text", "value": "nul \u{0} \u{2028} 😀"},
        {"type": "blob", "base64": ""},
        {"type": "blob", "base64": "AAEC/w"},
    ]);
    for (id, value) in values.as_array().expect("a list").iter().enumerate() {
        let stmt = json!({"sql": "INSERT INTO v VALUES (?, ?)",
            "args": [integer(id as i64), value]});
        let requests = json!([{"type": "execute", "stmt": stmt}]);
        let reply = node.pipeline(&Value::Null, requests).await;
        assert_eq!(reply["results"][0]["type"], "ok", "{reply}");
        for path in ["/v2/pipeline", "/v3/pipeline"] {
            let sql = format!("SELECT x FROM v WHERE id = {id}");
            let body = json!({"requests": [execute(&sql)]});
            let (_, _, text) = node.post(path, body).await;
            let shown = value.to_string();
            assert!(
                text.contains(&format!("\"rows\":[[{shown}]]")) || {
                    let reply: Value = serde_json::from_str(&text).expect("JSON");
                    reply["results"][0]["response"]["result"]["rows"][0][0] == *value
                },
                "{path} {shown}: {text}"
            );
        }
    }
    let minus = node
        .post(
            "/v3/pipeline",
            json!({"requests": [execute("SELECT x FROM v WHERE id = 3")]}),
        )
        .await;
    assert!(
        minus.2.contains(r#"{"type":"float","value":-0.0}"#),
        "{}",
        minus.2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn infinity_is_what_each_kind_of_client_can_read() {
    let node = Node::start().await;
    let body = json!({"requests": [execute("SELECT 1e308 * 10")]});
    let (_, _, text) = node.post("/v3/pipeline", &body).await;
    assert!(text.contains(r#"{"type":"float","value":null}"#), "{text}");
    let (_, _, text) = node.post("/v2/pipeline", &body).await;
    assert!(text.contains(r#"{"type":"float","value":1e999}"#), "{text}");
    let body = r#"{"requests":[{"type":"execute","stmt":{"sql":"SELECT ? > 1e308",
        "args":[{"type":"float","value":1e999}]}}]}"#;
    let (_, _, text) = node.post("/v2/pipeline", body).await;
    assert!(
        text.contains(r#"[[{"type":"integer","value":"1"}]]"#),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_lives_across_requests_by_its_baton_which_is_good_once() {
    let node = Node::start().await;
    node.run(&["CREATE TABLE t (x)"]).await;
    let begun = node
        .pipeline(
            &Value::Null,
            json!([execute("BEGIN"), execute("INSERT INTO t VALUES (1)")]),
        )
        .await;
    let first = begun["baton"].clone();
    assert_eq!(node.value("SELECT count(*) FROM t").await, integer(0));
    let next = node
        .pipeline(&first, json!([{"type": "get_autocommit"}]))
        .await;
    assert_eq!(next["results"][0]["response"]["is_autocommit"], false);
    let body = json!({"baton": first, "requests": [execute("COMMIT")]});
    let (status, used) = node.json("/v3/pipeline", body).await;
    assert_eq!((status, &used["code"]), (404, &json!("STREAM_NOT_FOUND")));
    let ended = node
        .pipeline(
            &next["baton"],
            json!([execute("COMMIT"), {"type": "close"}]),
        )
        .await;
    assert_eq!(ended["baton"], Value::Null);
    assert_eq!(node.value("SELECT count(*) FROM t").await, integer(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_baton_says_why_its_stream_is_gone() {
    let node = Node::start_with(|config, _| {
        config.http.stream_idle = Duration::ZERO;
    })
    .await;
    let opened = node.pipeline(&Value::Null, json!([execute("BEGIN")])).await;
    let body = json!({"baton": opened["baton"], "requests": [execute("SELECT 1")]});
    let (status, reply) = node.json("/v3/pipeline", body).await;
    assert_eq!((status, &reply["code"]), (410, &json!("STREAM_EXPIRED")));
    let opened = node.pipeline(&Value::Null, json!([execute("BEGIN")])).await;
    node.status.send_modify(|status| status.epoch = 2);
    let body = json!({"baton": opened["baton"], "requests": []});
    let (status, reply) = node.json("/v3/pipeline", body).await;
    assert_eq!((status, &reply["code"]), (410, &json!("STREAM_LOST")));
    let body = json!({"baton": "made up", "requests": []});
    let (status, reply) = node.json("/v3/pipeline", body).await;
    assert_eq!((status, &reply["code"]), (404, &json!("STREAM_NOT_FOUND")));
    assert!(reply["error"].is_string() && reply["message"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_runs_its_steps_under_their_conditions() {
    let node = Node::start().await;
    node.run(&[
        "CREATE TABLE t (id INTEGER PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
    ])
    .await;
    let step = |sql: &str, condition: Value| json!({"stmt": {"sql": sql}, "condition": condition});
    let ok = |n: u32| json!({"type": "ok", "step": n});
    let not = |c: Value| json!({"type": "not", "cond": c});
    let batch = json!({"steps": [
        step("BEGIN", Value::Null),
        step("INSERT INTO t VALUES (2)", ok(0)),
        step("INSERT INTO t VALUES (1)", ok(1)),
        step("COMMIT", ok(2)),
        step("ROLLBACK", not(ok(3))),
        step("SELECT 'autocommit'", json!({"type": "is_autocommit"})),
        step("SELECT 'never'", json!({"type": "and", "conds": [ok(5), ok(2)]})),
        step("SELECT 'skipped counts as error'", json!({"type": "error", "step": 3})),
    ]});
    let reply = node
        .pipeline(&Value::Null, json!([{"type": "batch", "batch": batch}]))
        .await;
    let result = &reply["results"][0]["response"]["result"];
    let ran: Vec<bool> = (0..8)
        .map(|i| result["step_results"][i].is_object())
        .collect();
    assert_eq!(
        ran,
        [true, true, false, false, true, true, false, true],
        "{result}"
    );
    let code = result["step_errors"][2]["code"].as_str().expect("a code");
    assert!(code.starts_with("SQLITE_CONSTRAINT"), "{code}");
    assert_eq!(node.value("SELECT count(*) FROM t").await, integer(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_texts_scripts_and_descriptions_work_on_a_stream() {
    let node = Node::start().await;
    let reply = node
        .pipeline(
            &Value::Null,
            json!([
                {"type": "sequence", "sql": "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT);
                    CREATE TRIGGER g AFTER INSERT ON t BEGIN UPDATE t SET v = 'x;y' WHERE id = new.id; END;
                    INSERT INTO t (v) VALUES ('a');"},
                {"type": "store_sql", "sql_id": 7, "sql": "SELECT v FROM t WHERE id = :id"},
                {"type": "execute", "stmt": {"sql_id": 7,
                    "named_args": [{"name": "id", "value": integer(1)}]}},
                {"type": "describe", "sql_id": 7},
                {"type": "close_sql", "sql_id": 7},
                {"type": "execute", "stmt": {"sql_id": 7}},
            ]),
        )
        .await;
    let response = |n: usize| reply["results"][n]["response"].clone();
    assert_eq!(
        response(2)["result"]["rows"][0][0]["value"],
        "x;y",
        "{reply}"
    );
    let described = response(3)["result"].clone();
    assert_eq!(described["params"], json!([{"name": ":id"}]));
    assert_eq!(
        described["cols"],
        json!([{"name": "v", "decltype": "TEXT"}])
    );
    assert_eq!(described["is_readonly"], true);
    assert_eq!(reply["results"][5]["type"], "error");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_request_runs_nothing_of_it() {
    let node = Node::start().await;
    node.run(&["CREATE TABLE t (x)"]).await;
    let insert = execute("INSERT INTO t VALUES (1)");
    let bad = json!([
        [insert, {"type": "dance"}],
        [insert, {"type": "close"}, {"type": "get_autocommit"}],
        [insert, {"type": "batch", "batch": {"steps": [
            {"stmt": {"sql": "SELECT 1"}, "condition": {"type": "ok", "step": 0}}]}}],
        [insert, {"type": "execute", "stmt": {"sql": "SELECT ?",
            "args": [{"type": "integer", "value": "99999999999999999999"}]}}],
    ]);
    for requests in bad.as_array().expect("a list") {
        let (status, reply) = node
            .json("/v3/pipeline", json!({"requests": requests}))
            .await;
        assert_eq!(
            (status, &reply["code"]),
            (400, &json!("TIDEGATE_MALFORMED")),
            "{reply}"
        );
    }
    for body in ["", "[", "{\"requests\":", &"[".repeat(1_000_000)] {
        let (status, _, _) = node.post("/v3/pipeline", body).await;
        assert_eq!(status, 400);
    }
    assert_eq!(node.value("SELECT count(*) FROM t").await, integer(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_the_limit_is_refused() {
    let node = Node::start_with(|config, _| config.http.request_bytes_max = 10_000).await;
    let (status, _, text) = node.post("/v3/pipeline", "x".repeat(10_001)).await;
    assert_eq!(status, 413);
    assert!(text.contains("TIDEGATE_TOO_LARGE"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_carry_their_position_and_a_read_can_wait_for_one() {
    let node = Node::start().await;
    let body = json!({"requests": [execute("CREATE TABLE t (x)")]});
    let (_, headers, text) = node.post("/v3/pipeline", body).await;
    let position = headers["tidegate-position"]
        .to_str()
        .expect("ASCII")
        .to_owned();
    let reply: Value = serde_json::from_str(&text).expect("JSON");
    let seq = reply["results"][0]["response"]["result"]["replication_index"].as_str();
    let seq = seq.expect("a write has a position");
    assert_eq!(position, format!("{CLUSTER}:1:{seq}"));
    let ask = async |position: String| {
        let request = node.http.post(format!("{}/v3/pipeline", node.url));
        let body = json!({"requests": [execute("SELECT 1")]}).to_string();
        let answer = request
            .header("tidegate-position", position)
            .body(body)
            .send()
            .await;
        let answer = answer.expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("text"))
    };
    assert_eq!(ask(position).await.0, 200);
    assert_eq!(ask("nonsense".into()).await.0, 400);
    let (status, text) = ask(format!("{}:1:1", "f".repeat(32))).await;
    assert!(status == 503 && text.contains("TIDEGATE_STALE"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_not_reached_in_time_is_stale() {
    let node = Node::start_with(|config, _| {
        config.http.wait_position = Duration::from_millis(50);
    })
    .await;
    let request = node.http.post(format!("{}/v3/pipeline", node.url));
    let request = request.header("tidegate-position", format!("{CLUSTER}:1:999999"));
    let answer = request
        .body(r#"{"requests":[]}"#)
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status().as_u16(), 503);
    assert!(answer.headers().contains_key("retry-after"));
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_of_this_machine_are_served_and_others_are_not() {
    let node = Node::start().await;
    let preflight = |origin: &'static str| {
        let request = node.http.request(
            reqwest::Method::OPTIONS,
            format!("{}/v3/pipeline", node.url),
        );
        request
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "content-type,x-custom")
            .send()
    };
    let local = preflight("http://localhost:5173").await.expect("an answer");
    assert_eq!(local.status().as_u16(), 204);
    assert_eq!(
        local.headers()["access-control-allow-origin"],
        "http://localhost:5173"
    );
    assert_eq!(
        local.headers()["access-control-allow-headers"],
        "content-type,x-custom"
    );
    let foreign = preflight("https://evil.example").await.expect("an answer");
    assert_eq!(foreign.status().as_u16(), 403);
    let request = node.http.post(format!("{}/v3/pipeline", node.url));
    let body = json!({"requests": [execute("CREATE TABLE stolen (x)")]}).to_string();
    let answer = request
        .header("origin", "https://evil.example")
        .body(body)
        .send()
        .await;
    assert_eq!(answer.expect("an answer").status().as_u16(), 403);
    assert_eq!(
        node.value("SELECT count(*) FROM sqlite_schema WHERE name = 'stolen'")
            .await,
        integer(0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_gives_lines_and_its_baton_goes_on_in_a_pipeline() {
    let node = Node::start().await;
    let batch = json!({"steps": [
        {"stmt": {"sql": "BEGIN"}},
        {"stmt": {"sql": "SELECT 'a' UNION ALL SELECT char(0x2028)"}},
        {"stmt": {"sql": "SELECT 1"}, "condition": {"type": "is_autocommit"}},
        {"stmt": {"sql": "SELECT * FROM nowhere"}},
    ]});
    let (status, headers, text) = node.post("/v3/cursor", json!({"batch": batch})).await;
    assert_eq!(status, 200, "{text}");
    assert!(
        headers.contains_key("content-length"),
        "a small body leaves in one write"
    );
    assert!(!text.contains('\u{2028}'), "clients split lines there");
    let lines: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).expect("JSON"))
        .collect();
    let kinds: Vec<&str> = lines[1..]
        .iter()
        .map(|l| l["type"].as_str().expect("a type"))
        .collect();
    let expected = [
        "step_begin",
        "step_end",
        "step_begin",
        "row",
        "row",
        "step_end",
        "step_error",
        "replication_index",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(lines[7]["step"], 3);
    let next = node
        .pipeline(&lines[0]["baton"], json!([{"type": "get_autocommit"}]))
        .await;
    assert_eq!(next["results"][0]["response"]["is_autocommit"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_cursor_is_streamed_and_whole() {
    let node = Node::start().await;
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000) \
               SELECT i, 'some text to fill the line' FROM n";
    let body = json!({"batch": {"steps": [{"stmt": {"sql": sql}}]}});
    let (_, headers, text) = node.post("/v3/cursor", body).await;
    assert!(!headers.contains_key("content-length"));
    assert_eq!(
        text.lines()
            .filter(|l| l.starts_with(r#"{"type":"row""#))
            .count(),
        50_000
    );
    assert!(text.ends_with("}\n") && text.contains(r#"{"type":"replication_index""#));
}

#[tokio::test(flavor = "multi_thread")]
async fn version_one_answers_errors_with_a_status() {
    let node = Node::start().await;
    let (status, reply) = node
        .json("/v1/execute", json!({"stmt": {"sql": "SELECT 7"}}))
        .await;
    assert_eq!((status, &reply["result"]["rows"][0][0]), (200, &integer(7)));
    let (status, reply) = node
        .json("/v1/execute", json!({"stmt": {"sql": "SELEKT"}}))
        .await;
    assert_eq!(status, 400);
    assert!(reply["message"].is_string());
    let batch = json!({"batch": {"steps": [{"stmt": {"sql": "SELECT 1"}}]}});
    let (status, reply) = node.json("/v1/batch", batch).await;
    assert_eq!(
        (status, reply["result"]["step_errors"].clone()),
        (200, json!([null]))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_in_mid_request_takes_its_transaction_along() {
    let node = Node::start().await;
    node.run(&["CREATE TABLE t (x)"]).await;
    let endless =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
    let body = json!({"requests": [
        execute("BEGIN IMMEDIATE"), execute("INSERT INTO t VALUES (1)"), execute(endless)]});
    let request = node
        .http
        .post(format!("{}/v3/pipeline", node.url))
        .body(body.to_string());
    // The client gives up; its socket closes.
    let given_up = request.timeout(Duration::from_millis(300)).send().await;
    assert!(given_up.expect_err("endless").is_timeout());
    // This waits for the write permit that the transaction held.
    let results = node.run(&["INSERT INTO t VALUES (2)"]).await;
    assert_eq!(results[0]["type"], "ok", "{}", results[0]);
    assert_eq!(node.value("SELECT sum(x) FROM t").await, integer(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn when_no_stream_can_be_kept_a_stateless_one_is_closed_and_a_transaction_is_told() {
    let node = Node::start_with(|config, _| config.http.streams_max = 1).await;
    let first = node.pipeline(&Value::Null, json!([execute("BEGIN")])).await;
    assert!(first["baton"].is_string());
    let second = node
        .pipeline(&Value::Null, json!([execute("SELECT 1")]))
        .await;
    assert_eq!(second["baton"], Value::Null);
    let body = json!({"requests": [execute("BEGIN")]});
    let (status, reply) = node.json("/v3/pipeline", body).await;
    assert_eq!(
        (status, &reply["code"]),
        (503, &json!("TIDEGATE_OVERLOADED"))
    );
    node.pipeline(&first["baton"], json!([{"type": "close"}]))
        .await;
}
