#!/bin/sh
# Builds one static binary that needs no file beside it: target/x86_64-unknown-linux-gnu/release/agentbox
#
# Needs a Rust toolchain, gcc and libc6-dev (for libc.a). Arguments are passed on to cargo.
set -eu
cd "$(dirname "$0")/.."

target="$(uname -m)-unknown-linux-gnu"

# Without the second flag getrandom opens /dev/urandom in a static program instead of making the
# system call, and fails where there is no /dev. `--target` keeps the flags from build scripts and
# procedural macros, which cannot be static.
RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static --cfg getrandom_backend=\"linux_getrandom\"" \
    cargo build --release --locked --target "$target" "$@"

binary="${CARGO_TARGET_DIR:-target}/$target/release/agentbox"
if readelf --program-headers "$binary" 2>/dev/null | grep -q INTERP; then
    echo "build-static: $binary still asks for a dynamic loader" >&2
    exit 1
fi
echo "$binary"
