#!/usr/bin/env bash
# All Rust tests: with cargo-nextest where it is installed, else with cargo's own runner.
set -euo pipefail
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --locked --workspace --no-tests=warn --status-level fail --show-progress none
    cargo test --quiet --locked --workspace --doc
else
    cargo test --quiet --locked --workspace
fi
