"""What runs tasks in this process, and a learner that dies, for tests of double machine learning."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sklearn.tree import DecisionTreeRegressor

from tweed.exchange.encoding import packed, unpacked


def serial(order: Callable[[list[int]], Iterable[int]] = iter) -> Any:
    """A stand-in for `map_tasks` that runs tasks here, in this order; all crosses as bytes."""

    def run(function: Any, payloads: Iterable[Any], *, shared: Any) -> Mapping[int, Any]:
        sent = [packed(payload, classes=()) for payload in payloads]
        others = unpacked(packed(shared, classes=()))
        return {task: function(unpacked(sent[task]), others) for task in order([*range(len(sent))])}

    return run


class DiesOnce(DecisionTreeRegressor):  # type: ignore[misc]
    """A learner that draws, and whose first fit ends its process: it leaves the file `marker`."""

    def __init__(self, marker: str = "", random_state: int | None = None) -> None:
        super().__init__(max_features=1, max_depth=4, random_state=random_state)
        self.marker = marker

    def fit(self, x: Any, y: Any) -> Any:
        with suppress(FileExistsError):
            Path(self.marker).touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(x, y)
