"""Maps of tasks under faults by the ten thousand: each task counts once, no result is lost, all end.

python -m tests.workloads.task_soak --seeds 10000
python -m tests.workloads.task_soak --seeds 1 --first 7   # one of them: also what it draws
"""

from __future__ import annotations

import argparse

from tests.workloads.task_seeds import drawn, verified


def main() -> None:
    """The command. Ends with an error if a seed is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.workloads.task_soak")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="of these seeds")
    given = parser.parse_args()
    if given.seeds == 1:
        print(drawn(given.first))
    report = verified(range(given.first, given.first + given.seeds))
    for seed, text in report.wrong.items():
        print(f"seed {seed}: {text}")
    print(f"{given.seeds} seeds from {given.first}: {len(report.wrong)} wrong")
    print(", ".join(f"{number} {what}" for what, number in sorted(report.totals.items())))
    raise SystemExit(len(report.wrong) > 0)


if __name__ == "__main__":
    main()
