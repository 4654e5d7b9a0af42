#!/usr/bin/env bash
# Makes .venv and installs what requirements.lock names; `make` calls it when the lock has changed.
#
# torch is 3 GB with its CUDA packages, so one that is already there (2.10 or later, in .venv or in the
# interpreter that .venv is made from) is used as it is. TORCH=cpu takes torch's CPU build instead.
set -euo pipefail
cd "$(dirname "$0")/.."

has_torch() {
    "$1" - <<'EOF'
import importlib.metadata as metadata, sys
try:
    major, minor = metadata.version("torch").split(".")[:2]
except metadata.PackageNotFoundError:
    sys.exit(1)
sys.exit((int(major), int(minor)) < (2, 10))
EOF
}

base=${PYTHON:-python3}
if ! "$base" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "tweed needs Python 3.11 or later, and $base is $("$base" --version 2>&1): try make PYTHON=python3.11" >&2
    exit 1
fi
if [ ! -x .venv/bin/python ]; then
    if has_torch "$base"; then shared=--system-site-packages; else shared=; fi
    "$base" -m venv $shared .venv
fi

.venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock uv
install=(.venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --requirement)
cuda='^(nvidia-|cuda-|triton)'
if has_torch .venv/bin/python; then
    "${install[@]}" <(grep -vE "^torch==|$cuda" requirements.lock)
elif [ "${TORCH:-}" = cpu ]; then
    "${install[@]}" <(grep -vE "$cuda" requirements.lock) --torch-backend cpu
else
    "${install[@]}" requirements.lock
fi
