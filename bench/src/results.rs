//! Turns measurements into `RESULTS.md` and its charts. Nothing here measures.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use crate::lag::{Lag, Percentiles};
use crate::lane::LaneKind;
use crate::plot::{Chart, Series};
use crate::shape::Shape;
use crate::suite::{CLIENTS, Idle, Pass, Results, Sample};

const LANES: [LaneKind; 3] = [LaneKind::Sqlite, LaneKind::Single, LaneKind::Pair];

/// Writes `RESULTS.md`, `results.json` and the charts into a directory.
pub fn write(results: &Results, directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory.join("plots"))?;
    std::fs::write(
        directory.join("results.json"),
        serde_json::to_string_pretty(results)? + "\n",
    )?;
    std::fs::write(directory.join("RESULTS.md"), markdown(results)?)?;
    for (name, chart) in charts(results) {
        std::fs::write(directory.join("plots").join(name), chart.svg())?;
    }
    Ok(())
}

fn markdown(results: &Results) -> Result<String> {
    let mut out = String::new();
    out.push_str(
        "# Results\n\nWritten by `bench/run.sh` from measured data only. Lanes ran interleaved; \
         each figure is the median of the rounds. Every acknowledged INSERT was counted in the \
         table afterwards.\n\n",
    );
    for (name, value) in &results.machine {
        writeln!(out, "- {name}: {value}")?;
    }
    writeln!(
        out,
        "- 4 KiB write and fsync: {} µs (median of each round: {:?})\n",
        median(results.fsync_us.iter().map(|&us| us as f64)).unwrap_or(0.0),
        results.fsync_us
    )?;
    bars(&mut out, results)?;
    for shape in [
        Shape::Insert,
        Shape::Read,
        Shape::Read10,
        Shape::Mixed,
        Shape::Empty,
    ] {
        shape_table(&mut out, results, shape)?;
    }
    lag_table(&mut out, results)?;
    if !results.failures.is_empty() {
        out.push_str("\n## Parts that failed\n\n");
        for failure in &results.failures {
            writeln!(out, "- {failure}")?;
        }
    }
    Ok(out)
}

/// The bars that this suite can judge.
fn bars(out: &mut String, results: &Results) -> Result<()> {
    out.push_str("## Bars\n\n| bar | wanted | measured | |\n|---|---|---|---|\n");
    let verdicts = [
        write_cost(results),
        against_sqlite(results, 16, 3.0),
        against_sqlite(results, 64, 6.0),
        longest_wait(results),
        plateau(results),
        lag_bar(results),
        lone_bar(results),
        read_latency(results),
        read_rate(results),
        results.pass.as_ref().map(pass_rate),
        results.pass.as_ref().map(pass_cost),
        results.idle.as_ref().map(idle_bar),
    ];
    for verdict in verdicts.into_iter().flatten() {
        let mark = if verdict.met { "met" } else { "**missed**" };
        writeln!(
            out,
            "| {} | {} | {} | {mark} |",
            verdict.bar, verdict.wanted, verdict.measured
        )?;
    }
    out.push('\n');
    out.push_str("![INSERTs per second](plots/insert_rate.svg)\n\n");
    out.push_str("![Latency of INSERTs](plots/insert_p99.svg)\n\n");
    out.push_str("![SELECTs per second](plots/read_rate.svg)\n\n");
    Ok(())
}

struct Verdict {
    bar: &'static str,
    wanted: String,
    measured: String,
    met: bool,
}

fn write_cost(results: &Results) -> Option<Verdict> {
    let rate = |lane| median(rates(&results.pinned, lane, Shape::Insert, 16));
    let (single, pair) = (rate(LaneKind::Single)?, rate(LaneKind::Pair)?);
    let unpinned = |lane| median(rates(&results.throughput, lane, Shape::Insert, 16));
    let free = unpinned(LaneKind::Pair)? / unpinned(LaneKind::Single)?;
    Some(Verdict {
        bar: "P1 writes with a replica attached, 16 clients",
        wanted: "≥ 95 % of those without".into(),
        measured: format!(
            "{:.0} % pinned ({pair:.0}/s of {single:.0}/s); {:.0} % unpinned",
            100.0 * pair / single,
            100.0 * free
        ),
        met: pair / single >= 0.95,
    })
}

fn against_sqlite(results: &Results, clients: u64, factor: f64) -> Option<Verdict> {
    let rate = |lane| median(rates(&results.throughput, lane, Shape::Insert, clients));
    let (ours, sqlite) = (rate(LaneKind::Single)?, rate(LaneKind::Sqlite)?);
    Some(Verdict {
        bar: if clients == 16 {
            "P2 durable INSERTs, 16 clients"
        } else {
            "P2 durable INSERTs, 64 clients"
        },
        wanted: format!("≥ {factor} × SQLite"),
        measured: format!("{:.1} × ({ours:.0}/s against {sqlite:.0}/s)", ours / sqlite),
        met: ours >= factor * sqlite,
    })
}

fn longest_wait(results: &Results) -> Option<Verdict> {
    let slowest = |clients| {
        let own = select(
            &results.throughput,
            LaneKind::Single,
            Shape::Insert,
            clients,
        );
        median(own.map(|s| s.load.slowest_us as f64 / 1e3))
    };
    let (sixteen, sixty_four) = (slowest(16)?, slowest(64)?);
    Some(Verdict {
        bar: "P2 slowest INSERT, 16 and 64 clients",
        wanted: "≤ 100 ms".into(),
        measured: format!("{sixteen:.1} ms, {sixty_four:.1} ms"),
        met: sixteen.max(sixty_four) <= 100.0,
    })
}

fn plateau(results: &Results) -> Option<Verdict> {
    let rate = |clients| {
        median(rates(
            &results.throughput,
            LaneKind::Single,
            Shape::Insert,
            clients,
        ))
    };
    let best = CLIENTS.iter().filter_map(|&c| rate(c)).fold(0.0, f64::max);
    let last = rate(256)?;
    let own = select(&results.throughput, LaneKind::Single, Shape::Insert, 256);
    let errors: u64 = own.map(|s| s.load.errors).sum();
    Some(Verdict {
        bar: "P3 INSERTs at 256 clients",
        wanted: "≥ 95 % of the best rate, 0 errors".into(),
        measured: format!(
            "{:.0} % ({last:.0}/s), {errors} errors",
            100.0 * last / best
        ),
        met: last >= 0.95 * best && errors == 0,
    })
}

fn lag_bar(results: &Results) -> Option<Verdict> {
    let floor = median(results.fsync_us.iter().map(|&us| us as f64))?;
    let of = |pick: fn(&Percentiles) -> u64| {
        let lags = results.lag_loaded.iter();
        median(lags.map(|lag| pick(&lag.acknowledged_to_applied) as f64))
    };
    let (p50, p99) = (of(|p| p.p50_us)?, of(|p| p.p99_us)?);
    let above = |us: f64| (us - floor).max(0.0) / 1e3;
    Some(Verdict {
        bar: "P4 commit to applied, 16 clients, over the fsync floor",
        wanted: "p50 ≤ 2 ms, p99 ≤ 10 ms".into(),
        measured: format!("p50 {:.2} ms, p99 {:.2} ms", above(p50), above(p99)),
        met: above(p50) <= 2.0 && above(p99) <= 10.0,
    })
}

fn lone_bar(results: &Results) -> Option<Verdict> {
    let floor = median(results.fsync_us.iter().map(|&us| us as f64))?;
    let sent = results.lag_lone.iter();
    let p50 = median(sent.map(|lag| lag.sent_to_applied.p50_us as f64))?;
    Some(Verdict {
        bar: "P4 a lone write, sent to applied",
        wanted: "≤ 2 fsyncs + 1 ms".into(),
        measured: format!("p50 {:.2} ms (fsync {:.2} ms)", p50 / 1e3, floor / 1e3),
        met: p50 <= 2.0 * floor + 1_000.0,
    })
}

fn read_latency(results: &Results) -> Option<Verdict> {
    let p50 = |shape| {
        let own = select(&results.throughput, LaneKind::Single, shape, 1);
        median(own.map(|s| s.load.p50_us as f64))
    };
    let (read, empty) = (p50(Shape::Read)?, p50(Shape::Empty)?);
    Some(Verdict {
        bar: "P5 point SELECT, 1 client, p50",
        wanted: "≤ 1.5 × an empty reply".into(),
        measured: format!("{:.2} × ({read} µs against {empty} µs)", read / empty),
        met: read <= 1.5 * empty,
    })
}

fn read_rate(results: &Results) -> Option<Verdict> {
    let rate = |shape| median(rates(&results.throughput, LaneKind::Single, shape, 16));
    let (read, empty) = (rate(Shape::Read)?, rate(Shape::Empty)?);
    Some(Verdict {
        bar: "P5 point SELECT, 16 clients",
        wanted: "≥ 70 % of the rate of an empty reply".into(),
        measured: format!(
            "{:.0} % ({read:.0}/s of {empty:.0}/s)",
            100.0 * read / empty
        ),
        met: read >= 0.7 * empty,
    })
}

fn pass_rate(pass: &Pass) -> Verdict {
    let rate = pass.rows as f64 / pass.seconds;
    Verdict {
        bar: "P7 convergence pass",
        wanted: "≥ 1.5 M rows/s".into(),
        measured: format!("{:.2} M rows/s ({} rows)", rate / 1e6, pass.rows),
        met: rate >= 1.5e6,
    }
}

fn pass_cost(pass: &Pass) -> Verdict {
    let share = pass.writes_beside / pass.writes_without;
    Verdict {
        bar: "P7 writes beside passes, 16 clients",
        wanted: "lose ≤ 10 %".into(),
        measured: format!("lose {:.0} %", 100.0 * (1.0 - share)),
        met: share >= 0.9,
    }
}

fn idle_bar(idle: &Idle) -> Verdict {
    let share = |cpu: f64| 100.0 * cpu / idle.seconds;
    let each: Vec<_> = idle
        .usage
        .iter()
        .map(|u| format!("{:.2} % and {:.0} MB", share(u.cpu_seconds), u.memory_mib))
        .collect();
    let connects = idle.connects.map_or("unknown".into(), |n| n.to_string());
    Verdict {
        bar: "P9 idle pair",
        wanted: "1 connect, ≤ 1 % of a core, ≤ 80 MB a node".into(),
        measured: format!("{connects} connects; {}", each.join("; ")),
        met: idle.connects == Some(1)
            && idle
                .usage
                .iter()
                .all(|u| share(u.cpu_seconds) <= 1.0 && u.memory_mib <= 80.0),
    }
}

fn shape_table(out: &mut String, results: &Results, shape: Shape) -> Result<()> {
    let title = match shape {
        Shape::Insert => "One durable INSERT per request",
        Shape::Read => "One SELECT by key per request",
        Shape::Read10 => "Ten SELECTs by key per request",
        Shape::Mixed => "One INSERT in five requests, SELECTs else",
        Shape::Empty => "An empty reply",
    };
    writeln!(
        out,
        "\n## {title}\n\n| lane | clients | requests/s | p50 ms | p99 ms | slowest ms | \
         completed | errors | CPU % | memory MB |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )?;
    for clients in CLIENTS {
        for lane in LANES {
            let own: Vec<_> = select(&results.throughput, lane, shape, clients).collect();
            if own.is_empty() {
                continue;
            }
            let of = |pick: fn(&Sample) -> f64| median(own.iter().map(|s| pick(s))).unwrap_or(0.0);
            let cpu: fn(&Sample) -> f64 =
                |s| 100.0 * s.usage.first().map_or(0.0, |u| u.cpu_seconds) / (s.load.seconds + 0.5);
            writeln!(
                out,
                "| {} | {clients} | {:.0} | {:.2} | {:.2} | {:.1} | {} | {} | {:.0} | {:.0} |",
                lane.name(),
                of(|s| s.load.rate),
                of(|s| s.load.p50_us as f64 / 1e3),
                of(|s| s.load.p99_us as f64 / 1e3),
                of(|s| s.load.slowest_us as f64 / 1e3),
                own.iter().map(|s| s.load.completed).sum::<u64>(),
                own.iter().map(|s| s.load.errors).sum::<u64>(),
                of(cpu),
                of(|s| s.usage.first().map_or(0.0, |u| u.memory_mib)),
            )?;
        }
    }
    Ok(())
}

type Part = fn(&Lag) -> Percentiles;

fn lag_table(out: &mut String, results: &Results) -> Result<()> {
    out.push_str(
        "\n## Commit on the primary to applied on the replica\n\n| load | probes | from | p50 ms | \
         p99 ms | slowest ms |\n|---|--:|---|--:|--:|--:|\n",
    );
    for (load, lags) in [
        ("none", &results.lag_lone),
        ("16 clients", &results.lag_loaded),
    ] {
        let parts: [(&str, Part); 3] = [
            ("sent to answered", |l| l.sent_to_acknowledged),
            ("answered to applied", |l| l.acknowledged_to_applied),
            ("sent to applied", |l| l.sent_to_applied),
        ];
        for (from, part) in parts {
            let of = |pick: fn(Percentiles) -> u64| {
                median(lags.iter().map(|l| pick(part(l)) as f64 / 1e3)).unwrap_or(0.0)
            };
            writeln!(
                out,
                "| {load} | {} | {from} | {:.2} | {:.2} | {:.2} |",
                lags.iter().map(|l| l.probes).sum::<u64>(),
                of(|p| p.p50_us),
                of(|p| p.p99_us),
                of(|p| p.slowest_us)
            )?;
        }
    }
    Ok(())
}

fn charts(results: &Results) -> Vec<(&'static str, Chart)> {
    let chart = |shape, title: &str, y: &str, logarithmic, pick: fn(&Sample) -> f64| Chart {
        title: title.into(),
        x_title: "clients".into(),
        y_title: y.into(),
        labels: CLIENTS.iter().map(u64::to_string).collect(),
        series: LANES
            .iter()
            .map(|&lane| Series {
                name: lane.name().into(),
                values: CLIENTS
                    .iter()
                    .map(|&c| median(select(&results.throughput, lane, shape, c).map(pick)))
                    .collect(),
            })
            .collect(),
        logarithmic,
    };
    let rate: fn(&Sample) -> f64 = |s| s.load.rate;
    let p99: fn(&Sample) -> f64 = |s| s.load.p99_us as f64 / 1e3;
    vec![
        (
            "insert_rate.svg",
            chart(
                Shape::Insert,
                "Durable INSERTs, one per request",
                "requests/s",
                false,
                rate,
            ),
        ),
        (
            "insert_p99.svg",
            chart(
                Shape::Insert,
                "Durable INSERTs: 99th percentile",
                "ms",
                true,
                p99,
            ),
        ),
        (
            "read_rate.svg",
            chart(
                Shape::Read,
                "SELECTs by key, one per request",
                "requests/s",
                false,
                rate,
            ),
        ),
    ]
}

fn select(
    samples: &[Sample],
    lane: LaneKind,
    shape: Shape,
    clients: u64,
) -> impl Iterator<Item = &Sample> {
    samples
        .iter()
        .filter(move |s| s.lane == lane && s.load.shape == shape && s.load.clients == clients)
}

fn rates(
    samples: &[Sample],
    lane: LaneKind,
    shape: Shape,
    clients: u64,
) -> impl Iterator<Item = f64> {
    select(samples, lane, shape, clients).map(|s| s.load.rate)
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}
