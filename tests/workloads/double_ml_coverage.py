"""How often intervals hold the truth: `python -m tests.workloads.double_ml_coverage [--seeds 200]`."""

from __future__ import annotations

import argparse

from tests.workloads.double_ml_samples import covered
from tests.workloads.test_double_ml import MODELS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="samples per model, by the seeds from 0")
    parser.add_argument("--units", type=int, default=300, help="of each sample")
    given = parser.parse_args()
    for name, model in MODELS.items():
        count = covered(model, name, range(given.seeds), given.units)
        print(f"{name}: {count} of {given.seeds} intervals at 95 % hold theta, {count / given.seeds:.1%}")


if __name__ == "__main__":
    main()
