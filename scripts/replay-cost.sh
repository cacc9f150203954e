#!/bin/bash
# What recording and replaying cost: whole programs natively, recorded, and replayed, in turns, medians.
#
#   scripts/replay-cost.sh [-n TURNS] [WORD...]
#
# Measures the programs whose name holds one of the WORDs (all of them by default), each TURNS times (5),
# and prints a table in Markdown: milliseconds natively, all others as a ratio to them. Replays leave
# waits out, but for `--paced`. AGENTBOX names the binary, CLIENTS a virtual environment with pip. Beside
# agentbox it measures rr, Hermit, and faketime with mitmproxy, where they start (RR, HERMIT, FAKETIME and
# MITMDUMP name them); what those say that do not start stands below the table.
set -euo pipefail
cd "$(dirname "$0")/.."

AGENTBOX=$(realpath "${AGENTBOX:-target/release/agentbox}")
if [ ! -x "$AGENTBOX" ]; then
    echo "replay-cost: no $AGENTBOX (cargo build --release, or set AGENTBOX)" >&2
    exit 2
fi
export AGENTBOX PYTHONDONTWRITEBYTECODE=1
exec python3 benches/replay/cost.py "$@"
