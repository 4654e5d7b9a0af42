"""A rank is killed under torchrun, which starts all again: training goes on from the checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.integrations import restarted
from tests.integrations.ranks import needs
from tests.torch.agents import agents

needs("lightning")
needs("accelerate")


@pytest.mark.parametrize("way", ["attach", "accelerate", "lightning"])
def test_training_goes_on_from_the_checkpoint(way: str, tmp_path: Path) -> None:
    [(code, output)] = agents((1, 2), ("--max-restarts", "1"), (restarted.__file__, way, str(tmp_path)))
    assert code == 0 and (tmp_path / "killed").exists(), output
    for rank in range(2):
        assert torch.load(tmp_path / f"end-{rank}").tolist() == pytest.approx(restarted.alone())
