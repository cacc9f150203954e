#!/bin/bash
# Runs the fuzz targets, each for ten minutes: policy, trace, tamper, http, hello, dns, socks, frames,
# program, address.
#
#   scripts/fuzz.sh [TARGET [SECONDS]]
#
# Needs cargo-fuzz (`cargo install cargo-fuzz`). Stops at the first fault; its input is then in
# tests/fuzz/artifacts. What was found to reach new code is kept in tests/fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=(policy trace tamper http hello dns socks frames program address)
[ $# -gt 0 ] && targets=("$1")
seconds=${2:-600}

# The instrumentation needs no nightly compiler without the address sanitizer, and the product has
# hardly any unsafe code for that to watch.
export RUSTC_BOOTSTRAP=1
for target in "${targets[@]}"; do
    echo "== $target: $seconds s"
    mkdir -p "tests/fuzz/corpus/$target"
    options=(-max_total_time="$seconds" -max_len=4096 -timeout=25 -rss_limit_mb=2048 -print_final_stats=1)
    dictionary=tests/fuzz/dictionaries/$target.dict
    [ -e "$dictionary" ] && options+=(-dict="$dictionary")
    cargo fuzz run --fuzz-dir tests/fuzz -s none "$target" \
        "tests/fuzz/corpus/$target" "tests/fuzz/seeds/$target" -- "${options[@]}"
done
