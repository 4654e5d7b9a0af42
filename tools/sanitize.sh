#!/usr/bin/env bash
# Runs the named checks of docs/decisions/0017: loom backend addresses undefined threads threads-quick. What the compilers here cannot do is said
# in one line and passed over. Each has a build folder of its own: other flags would build everything anew, both ways.
set -euo pipefail
cd "$(dirname "$0")/.."
host=$(rustc --print host-tuple)
pure=(--package tweed-schedule --package tweed-kernels --package tweed-proto --package tweed-sim)

not_run() { echo "not run: $1"; }

# Wake-ups, in all interleavings.
loom() {
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --quiet --locked --package tweed-loom --lib
}

# The C++ backend, under real ranks: addresses and undefined behaviour. Python itself leaks, and torch is not watched.
backend() {
    asan=$(g++ -print-file-name=libasan.so 2>/dev/null || true)
    if [[ $asan != /* ]]; then not_run "the C++ backend's sanitizers: they come with g++" && return; fi
    export CXX=$PWD/tools/sanitized-c++ TWEED_CACHE=$PWD/target/sanitized-backend
    python -c 'from tweed.torch import build; build.build()'
    LD_PRELOAD="$asan $(g++ -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
        pytest --quiet tests/torch/test_operations.py -k 'native-3-auto'
}

# The Rust crates that hold `unsafe`: addresses.
addresses() {
    runtime=$(find "$(rustc --print sysroot)" -name 'librustc*_rt.asan.a' -print -quit)
    if [ -z "$runtime" ]; then not_run "the address sanitizer: this compiler comes without its runtime" && return; fi
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR=target/asan \
        cargo test --quiet --locked --target "$host" --package tweed-net --package tweed-kernels --package tweed-proto --tests
}

# The pure crates: undefined behaviour. Examples are few: miri is a thousand times slower.
undefined() {
    if ! cargo +nightly miri --version >/dev/null 2>&1; then
        not_run "miri: no nightly compiler with it (rustup +nightly component add miri rust-src)" && return
    fi
    MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=2 CARGO_TARGET_DIR=target/miri \
        cargo +nightly miri test --quiet --locked "${pure[@]}" --lib
}

# The engine's threads, as far as our own code goes: locks say themselves who held them before (`sync::sanitizer`), and of what
# happens within std some is passed over by name. The kernel is left to end a child that touches what it must not: a test has one do so.
watch_threads() {
    runtime=$(find "$(rustc --print sysroot)" -name 'librustc*_rt.tsan.a' -print -quit)
    if [ -z "$runtime" ]; then not_run "the thread sanitizer: this compiler comes without its runtime" && return; fi
    if ! RUSTC_BOOTSTRAP=1 rustc -Cunsafe-allow-abi-mismatch=sanitizer --print sysroot >/dev/null 2>&1; then
        not_run "the thread sanitizer: this compiler links no std without it" && return
    fi
    export TSAN_OPTIONS="handle_segv=0 suppressions=$PWD/tools/tsan-suppressions.txt"
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg tsan" \
        CARGO_TARGET_DIR=target/tsan CARGO_PROFILE_DEV_OPT_LEVEL=0 \
        cargo test --quiet --locked --target "$host" --package tweed-net "$@"
}

threads-quick() { watch_threads --test live; }

# But for the tests whose own locks are std's, and those of how much memory a peer takes and how soon a crowd is let in.
threads() {
    watch_threads --lib --test live --test packets --test leaving --test meeting --test hostile --test many -- \
        --skip a_peer_costs_little --skip a_crowd_of_callers --skip who_has_called_and_says_no_more
}

for check in "$@"; do
    echo "== $check"
    "$check"
done
