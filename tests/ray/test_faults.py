"""A short run of `tests.ray.faults`: each kind of collective, with a death in its middle, and a new seed."""

from __future__ import annotations

import random
import subprocess
import sys

from tests.ray.driver import HOUSE
from tests.ray.faults import KINDS


def test_collectives_are_right_whichever_process_is_killed() -> None:
    seed = random.SystemRandom().getrandbits(32)
    words = ["-m", "tests.ray.faults", "--rounds", str(2 * len(KINDS)), "--seed", str(seed)]
    # A process of its own: it forks others, and threads of other tests must not be there then.
    done = subprocess.run([sys.executable, *words], cwd=HOUSE, capture_output=True, text=True, check=False)
    print(f"to see the same deaths: python {' '.join(words)}\n{done.stdout}")
    assert done.returncode == 0, done.stdout + done.stderr
