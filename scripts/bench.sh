#!/bin/bash
# What confinement and the record cost: each load bare and under `agentbox run`, in turns, medians.
#
#   scripts/bench.sh [-n RUNS] [-f FILES] [-k KEEP_DIR] [LOAD...]
#   scripts/bench.sh -w [-n RUNS] [-s SECONDS] [-k KEEP_DIR] [NETWORK_LOAD...]
#
# LOAD: true python read write find search make exec git (all of them by default). `-n` is how many
# times each load runs (start-up loads five times as often), `-f` how many small files there are
# (5000). AGENTBOX names the binary, RUN_OPTIONS holds further options of `agentbox run`. The table
# goes to stdout: first the whole, with the launcher's start and end, then what a timer inside the
# sandbox saw of the command alone.
#
# NETWORK_LOAD: http http-hey http-new https https-new download gets gets-kept idle (all of them by default),
# each against a server on this machine; `-s` is how long a load by wrk lasts (3). They need nginx,
# wrk, hey, go, curl and openssl (Debian: nginx-light wrk hey golang-go curl openssl). Beside agentbox they measure
# mitmproxy and srt where there are such programs (MITMDUMP and SRT name them).
set -euo pipefail
cd "$(dirname "$0")/.."

runs=7 files=5000 keep= network= seconds=3
while getopts 'n:f:k:s:wh' option; do
    case "$option" in
        n) runs=$OPTARG ;;
        f) files=$OPTARG ;;
        k) keep=$OPTARG ;;
        s) seconds=$OPTARG ;;
        w) network=yes ;;
        *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || [ -n "$network" ] || set -- true python read write find search make exec git

agentbox=$(realpath "${AGENTBOX:-target/release/agentbox}")
if [ ! -x "$agentbox" ]; then
    echo "bench: no $agentbox (cargo build --release, or set AGENTBOX)" >&2
    exit 2
fi

dir=${keep:-$(mktemp -d)}
mkdir -p "$dir"
dir=$(realpath "$dir")
[ -n "$keep" ] || trap 'rm -rf "$dir"' EXIT
cp benches/loads/* "$dir"
cc -O2 -o "$dir/timed" benches/loads/timed.c
if [ -n "$network" ]; then
    RUNS=$runs LASTING=$seconds DIR=$dir AGENTBOX=$agentbox PYTHONDONTWRITEBYTECODE=1 python3 benches/network.py "$@"
    exit
fi
mkdir -p "$dir/tree" "$dir/out" "$dir/repository" "$dir/nested" "$dir/project"

cat > "$dir/bench.policy" <<POLICY
read: $dir/read.py, $dir/write.py, $dir/exec.sh
read: $dir/tree
read: $dir/nested
write: $dir/out
write: $dir/repository
write: $dir/project
exec: true, sh, cc, as, make, git, find, rg, grep
exec: /usr/lib/gcc/**, /usr/libexec/gcc/**
exec: $dir/timed, $(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
net: example.org
POLICY

RUNS=$runs FILES=$files DIR=$dir AGENTBOX=$agentbox python3 benches/ratios.py "$@"
