"""Shakespeare, with the larger transformer of `tweed.train.tasks.shakespeare`."""

from __future__ import annotations

from tweed.train.tasks.shakespeare import LARGE_TASK as TASK

__all__ = ["TASK"]
