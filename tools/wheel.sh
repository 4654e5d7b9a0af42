#!/usr/bin/env bash
# Builds the wheel into dist/, installs it into an empty environment, and runs the README's ten lines there, on four
# ranks and with no compiler in reach.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf dist
maturin build --quiet --release --locked --out dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
uv venv --quiet --python .venv/bin/python "$work/env"
uv pip install --quiet --python "$work/env/bin/python" --constraint requirements.lock dist/*.whl
sed -n '/^```python$/,/^```$/p' README.md | sed '/^```/d' >"$work/example.py"
cd "$work"
env -i PATH="$work/env/bin" HOME="$work" env/bin/torchrun --nproc-per-node 4 example.py | tee output
[ "$(grep -c '^rank [0-3]: loss' output)" = 4 ]
echo "installed and run: $(basename "$OLDPWD"/dist/*.whl)"
