//! A second file kept equal from the log, by the production functions.

mod alarms;
mod chain;
mod data;
mod foreign_keys;
mod formats;
mod schema;
mod triggers;
mod trim;
mod values;

use tidegate_engine::testing::Pair;

/// A pair in a directory that goes away with it.
struct Bench {
    pair: Pair,
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pair = Pair::new(dir.path()).unwrap();
        Self { pair, dir }
    }

    /// A pair on which a script has run and was shipped.
    fn with(script: &str) -> Self {
        let mut bench = Self::new();
        bench.run(script);
        bench.equal();
        bench
    }

    fn run(&mut self, script: &str) {
        for line in lines(script) {
            run_line(&mut self.pair, line);
        }
    }

    /// Ships and demands that both are equal.
    fn equal(&mut self) {
        self.pair.ship().unwrap();
        let differences = self.pair.differences().unwrap();
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
}

/// Runs a script twice: shipping after each line that leaves no transaction open, and with
/// one batch for all of it. A line that begins with `!` must fail.
fn replicates(script: &str) {
    let (mut each, mut once) = (Bench::new(), Bench::new());
    for line in lines(script) {
        run_line(&mut each.pair, line);
        each.equal();
        run_line(&mut once.pair, line);
    }
    once.equal();
}

fn lines(script: &str) -> impl Iterator<Item = &str> {
    let lines = script.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("--"))
}

fn run_line(pair: &mut Pair, line: &str) {
    let (sql, fails) = match line.strip_prefix('!') {
        Some(sql) => (sql, true),
        None => (line, false),
    };
    let ran = pair.run(sql);
    assert_eq!(ran.is_err(), fails, "{line}: {ran:?}");
}
