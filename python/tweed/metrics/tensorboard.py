"""The metrics for TensorBoard, through torch's writer: rates, as it draws what it is given."""

from __future__ import annotations

from collections.abc import Iterator

from torch.utils.tensorboard import SummaryWriter

from tweed.metrics.hub_snapshot import HubCounts
from tweed.metrics.snapshot import Matrix, Row, arrivals, per_second


def scalars(window: Matrix) -> Iterator[tuple[str, float]]:
    """Tags and values of the time between two matrices, given as their difference."""
    for row in window.rows:
        yield f"tweed_MB_per_s_out/rank_{row.rank}", row.rate("bytes_out") / 1e6
        yield f"tweed_MB_per_s_in/rank_{row.rank}", row.rate("bytes_in") / 1e6
        yield f"tweed_retransmissions_per_s/rank_{row.rank}", row.rate("retransmissions")
        yield from _links(row)
        yield from _training(row)
    if window.hub is not None:
        yield from _hub(window.hub, window.up_s)
    for arrival in arrivals(window):
        yield f"tweed_last_share/rank_{arrival.rank}", arrival.share
        yield f"tweed_late_ms/rank_{arrival.rank}", arrival.late_s * 1e3


def _links(row: Row) -> Iterator[tuple[str, float]]:
    for link in row.links:
        if link.rtt_s is not None:
            yield f"tweed_round_trip_ms/rank_{row.rank}_to_{link.peer}", link.rtt_s * 1e3


def _hub(hub: HubCounts, seconds: float) -> Iterator[tuple[str, float]]:
    yield "tweed_hub/commits_per_s", per_second(hub.version, seconds)
    yield "tweed_hub/members", hub.there
    for name in ("counted", "rejected", "late"):
        count = sum(getattr(one, name) for one in hub.members)
        yield f"tweed_hub/{name}_per_s", per_second(count, seconds)
    judged = sum(one.counted + one.rejected for one in hub.members)
    yield "tweed_hub/mean_delay", per_second(sum(one.delay for one in hub.members), judged)


def _training(row: Row) -> Iterator[tuple[str, float]]:
    yield f"tweed_under_way_share/rank_{row.rank}", per_second(row.under_way_s, row.up_s)
    if row.training is not None:
        yield f"tweed_steps_per_s/rank_{row.rank}", per_second(row.training.steps, row.up_s)
        yield f"tweed_waiting_share/rank_{row.rank}", per_second(row.training.waiting_s, row.up_s)
        yield f"tweed_encoding_share/rank_{row.rank}", per_second(row.training.encoding_s, row.up_s)


class Board:
    """Writes events to a folder.

    Args:
      folder: made if it is not there.
    """

    def __init__(self, folder: str) -> None:
        self._writer = SummaryWriter(folder)
        self._before: Matrix | None = None

    def show(self, matrix: Matrix) -> None:
        """Adds what happened since the last matrix. The step is rank 0's of training, else the seconds."""
        before, self._before = self._before, matrix
        if before is None:
            return
        step = _step(matrix)
        for tag, value in scalars(matrix.since(before)):
            self._writer.add_scalar(tag, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Closes the file of events."""
        self._writer.close()

    def disown(self) -> None:
        """In a fork: the file and its thread are the parent's."""


def _step(matrix: Matrix) -> int:
    first = matrix.row(0)
    if first is None or first.training is None:
        return round(matrix.up_s)
    return first.training.steps
