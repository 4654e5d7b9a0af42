#!/usr/bin/env bash
# Walks all interleavings of the wake-ups between threads and processes (crates/loom). Half a minute, most of it building.
set -euo pipefail
cd "$(dirname "$0")/.."
# A folder of its own: other flags would build everything anew on each change of mind.
export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom
cargo test --quiet --locked --package tweed-loom --lib
