#!/bin/bash
# Every gate, for a developer and for the build machine alike: format, lints, docs, tests.
#
#   scripts/check.sh [FILTER...]     arguments are passed on to the tests
#
# All gates run even when one fails. The last lines name what was skipped, and why, and count.
set -uo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CHECK_SKIPS="$work/skips"
: >"$CHECK_SKIPS"
# The tests write here as users other than the caller, too.
chmod 755 "$work" && chmod 666 "$CHECK_SKIPS"
failed=()

gate() {
    local name=$1
    shift
    echo "== $name: $*"
    "$@" || failed+=("$name")
}

gate format cargo fmt --check
gate lints cargo clippy --quiet --locked --all-targets -- -D warnings
gate docs env RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --quiet --locked --no-deps --document-private-items
# libFuzzer is C++. The targets need no nightly compiler (see fuzz.sh).
if command -v c++ >/dev/null; then
    gate fuzz env RUSTC_BOOTSTRAP=1 cargo check --quiet --locked --manifest-path tests/fuzz/Cargo.toml
else
    echo "fuzz targets: there is no C++ compiler" >>"$CHECK_SKIPS"
fi

tests() { cargo test --locked --no-fail-fast -- "$@" 2>&1 | tee "$work/tests"; }
echo "== tests: cargo test"
tests "$@" || failed+=(tests)

echo "== summary"
sort -u "$CHECK_SKIPS" | sed 's/^/SKIP /'
for name in "${failed[@]}"; do echo "FAILED $name"; done
skipped=$(sort -u "$CHECK_SKIPS" | wc -l)
verdict=ok
[ ${#failed[@]} -eq 0 ] || verdict=FAILED
awk -v skipped="$skipped" -v verdict="$verdict" '
    /^test result: / { for (i = 2; i <= NF; i++) { if ($i == "passed;") passed += $(i - 1); if ($i == "failed;") failed += $(i - 1) } }
    END { printf "test result: %s. %d passed; %d failed; %d skipped\n", verdict, passed - skipped, failed, skipped }
' "$work/tests"
[ "$verdict" = ok ]
