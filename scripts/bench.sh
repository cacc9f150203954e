#!/bin/bash
# What confinement and the record cost: each load bare and under `agentbox run`, in turns, medians.
#
#   scripts/bench.sh [-n RUNS] [-f FILES] [-k KEEP_DIR] [LOAD...]
#
# LOAD: true python read write find search make exec git (all of them by default). `-n` is how many
# times each load runs (start-up loads five times as often), `-f` how many small files there are
# (5000). AGENTBOX names the binary, RUN_OPTIONS holds further options of `agentbox run`. The table
# goes to stdout.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=7 files=5000 keep=
while getopts 'n:f:k:h' option; do
    case "$option" in
        n) runs=$OPTARG ;;
        f) files=$OPTARG ;;
        k) keep=$OPTARG ;;
        *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- true python read write find search make exec git

agentbox=$(realpath "${AGENTBOX:-target/release/agentbox}")
if [ ! -x "$agentbox" ]; then
    echo "bench: no $agentbox (cargo build --release, or set AGENTBOX)" >&2
    exit 2
fi

dir=${keep:-$(mktemp -d)}
mkdir -p "$dir"
dir=$(realpath "$dir")
[ -n "$keep" ] || trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/tree" "$dir/out" "$dir/repository" "$dir/nested" "$dir/project"

cat > "$dir/bench.policy" <<POLICY
read: $dir/tree
read: $dir/nested
write: $dir/out
write: $dir/repository
write: $dir/project
exec: true, sh, cc, as
exec: /usr/lib/gcc/**, /usr/libexec/gcc/**
net: example.org
POLICY

cp benches/loads/* "$dir"

RUNS=$runs FILES=$files DIR=$dir AGENTBOX=$agentbox python3 benches/ratios.py "$@"
