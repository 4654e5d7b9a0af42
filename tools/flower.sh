#!/usr/bin/env bash
# Tests tweed under Flower in an environment of its own, target/flower: Flower's pins do not go with the lock.
set -euo pipefail
cd "$(dirname "$0")/.."
torch=$(.venv/bin/python -c 'import torch; print(torch.__version__.partition("+")[0])')
uv venv --quiet --allow-existing --python .venv/bin/python target/flower
uv pip install --quiet --python target/flower/bin/python --requirement pyproject.toml --extra flower \
    "torch==$torch" hypothesis pytest pytest-timeout
TWEED_TEST_INTEGRATIONS=1 OMP_NUM_THREADS=1 PYTHONPATH=python \
    target/flower/bin/python -m pytest tests/integrations/test_flower.py
