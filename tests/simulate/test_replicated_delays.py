"""What a second reading of the simulated standby found: it fails until it is mended."""

from __future__ import annotations

from tests.hub.standby.test_machine import Run
from tweed.simulate.replicated_hub import Failures


def test_delays_are_those_of_the_commits_that_there_are() -> None:
    """What was committed by a hub that is gone, and its standby lacked, is not in `steps` any more."""
    for seed in range(12):
        run = Run(seed, Failures(kills=0.5)).run
        run.until(updates=60, seconds=60.0)
        assert len(run.delays) == sum(len(step) for step in run.steps), f"seed {seed}: {run.kills} kills"
