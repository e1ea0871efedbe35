#!/usr/bin/env bash
# Runs all lanes interleaved and writes bench/RESULTS.md, bench/results.json and the charts.
# Arguments go to `tidegate-bench suite`, e.g. `bench/run.sh --rounds 1 --seconds 2`.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --workspace --bins
target=$(cargo metadata --format-version 1 --no-deps |
    sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
bench=$(ls -t "$target"/*/release/tidegate-bench "$target"/release/tidegate-bench 2>/dev/null | head -1)
exec "$bench" suite --data-dir "$target/bench-data" "$@"
