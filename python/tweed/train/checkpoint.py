"""A worker's state on disk. A checkpoint is there whole, for all ranks, or it does not count.

checkpoints/SIDE/latest                the step that counts, written last
checkpoints/SIDE/step-00000200/rank-0  a rank's state after 200 steps
checkpoints/SIDE/plan.json             the schedules that the ranks ran, for those who go on
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch.distributed as dist

from tweed.errors import DataError, UsageError
from tweed.exchange.encoding import packed, unpacked
from tweed.files import write_atomic
from tweed.train.folder import LATEST, PLAN, latest


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def _step_folder(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}"


def save(folder: Path, step: int, state: dict[str, Any]) -> None:
    """Stores every rank's `state` after `step` steps. All ranks call it; none returns before all are stored.
    Without a group this process is the only one.

    Args:
      state: plain values and tensors: what may lie in a folder that others write to runs no code.

    Cost: a barrier, and one write of the state to disk per rank.
    """
    rank = _rank()
    here = _step_folder(folder, step)
    here.mkdir(parents=True, exist_ok=True)
    write_atomic(here / f"rank-{rank}", packed(state))
    if dist.is_initialized():
        dist.barrier()
    if rank == 0:
        if plan := state["side"].get("plan"):
            write_atomic(folder / PLAN, plan)
        write_atomic(folder / LATEST, str(step))
        _forget(folder, step)


def _forget(folder: Path, step: int) -> None:
    """Removes all checkpoints but that of `step`."""
    for old in folder.glob("step-*"):
        if old != _step_folder(folder, step):
            shutil.rmtree(old, ignore_errors=True)


def load(folder: Path) -> dict[str, Any] | None:
    """This rank's state in the checkpoint that counts, or None if there is none."""
    step = latest(folder)
    if step == 0:
        return None
    path = _step_folder(folder, step) / f"rank-{_rank()}"
    if not path.exists():
        raise UsageError(
            f"{path} is not there: was this run trained by as many workers, and without --elastic?"
        )
    try:
        state: dict[str, Any] = unpacked(path.read_bytes())
    except DataError as error:
        raise DataError(
            f"{path} is damaged, or of another version of tweed: {error}. Begin anew in another folder"
        ) from None
    return state
