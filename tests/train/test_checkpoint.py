"""A worker's state in a folder that others may write to."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from tweed.errors import DataError
from tweed.train import checkpoint

STATE = {"step": 3, "side": {"plan": "{}"}, "model": {"w": torch.ones(2)}, "random": (1, (2, 3), None)}


class Attack:
    """As a pickle it makes a file where it is read."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.place,)


def as_torch_has_it(value: Any) -> bytes:
    content = io.BytesIO()
    torch.save(value, content)
    return content.getvalue()


def test_a_state_comes_back(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path) is None
    checkpoint.save(tmp_path, 3, STATE)
    found = checkpoint.load(tmp_path)
    assert found is not None and torch.equal(found.pop("model")["w"], torch.ones(2))
    assert found == {name: value for name, value in STATE.items() if name != "model"}


@pytest.mark.parametrize("written", [pickle.dumps, as_torch_has_it])
def test_a_checkpoint_that_is_a_pickle_is_refused_and_not_run(written: Any, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 3, STATE)
    (tmp_path / "step-00000003/rank-0").write_bytes(written(Attack(tmp_path / "run")))
    with pytest.raises(DataError, match="rank-0 is damaged, or of another version"):
        checkpoint.load(tmp_path)
    assert not (tmp_path / "run").exists()
