#!/usr/bin/env bash
# Runs each target of fuzz/ (or those named) for $SECONDS_EACH seconds, and adds what it finds to fuzz/corpus.
#
# libFuzzer needs no nightly compiler: cargo-fuzz's flags for coverage are passes of LLVM that any rustc takes.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
export RUSTFLAGS="--cfg fuzzing -Cdebug-assertions -Ccodegen-units=1 -Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    RUSTFLAGS+=" -Cllvm-args=-sanitizer-coverage-$option"
done
target=$(rustc --print host-tuple)
cargo build --quiet --release --target "$target" # with --target, what runs while building is not watched

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p artifacts
[ $# -gt 0 ] || set -- parsers ltp_packets ltp_links
for name in "$@"; do
    echo "fuzzing $name for ${SECONDS_EACH:=60} s"
    python3 corpus.py unpack "corpus/$name.hex" "$work/$name"
    [ ! -f "corpus/$name-by-hand.hex" ] || python3 corpus.py unpack "corpus/$name-by-hand.hex" "$work/$name"
    dictionary=()
    [ ! -f "$name.dict" ] || dictionary=("-dict=$name.dict")
    "target/$target/release/$name" "$work/$name" "${dictionary[@]}" -max_len=1024 -max_total_time="$SECONDS_EACH" -print_final_stats=1 \
        -verbosity=0 -artifact_prefix="artifacts/$name-"
    mkdir "$work/$name-few"
    "target/$target/release/$name" -set_cover_merge=1 -verbosity=0 "$work/$name-few" "$work/$name" 2>/dev/null
    python3 corpus.py pack "$work/$name-few" "corpus/$name.hex"
done
