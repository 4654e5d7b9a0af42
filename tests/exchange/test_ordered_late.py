"""The live driver's two sides by hand: messages come when the script says, however late."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import torch
from torch import Tensor

from tweed.cadence import Ordered, ServerPolicy
from tweed.compress import Spec
from tweed.exchange.gradient_form import GradientForm
from tweed.exchange.ordered import _Kind, _Server, _Worker

#: What the server sends at the end of an iteration.
CLOSING: list[tuple[Hashable, Tensor]] = [
    ("closing", torch.tensor([5.0, -1.0], dtype=torch.float64)),
    ("mean", torch.tensor([3.0, 4.0])),
]


class Script:
    """Stands in for `PeerMessages`: what is expected comes in the order of the script, with its values."""

    def __init__(self, script: list[tuple[Hashable, Tensor]]) -> None:
        self._script: Iterator[Any] = iter(script)
        self._into: dict[Hashable, Tensor] = {}
        self.log: list[tuple[str, int, list[float]]] = []

    def send(self, tensor: Tensor, rank: int) -> None:
        self.log.append(("sent", rank, tensor.tolist()))

    def expect(self, name: Hashable, tensor: Tensor, rank: int) -> None:
        self._into[name] = tensor

    def next(self, until: float) -> Hashable:
        name: Hashable
        name, value = next(self._script)
        self._into.pop(name).copy_(value)
        self.log.append((str(name), -1, value.tolist()))
        return name

    def flush(self) -> None:
        """Nothing is on its way."""


def head(kind: _Kind, norm: float) -> Tensor:
    sends = kind in (_Kind.TIMER_EXPIRED, _Kind.ABOVE_LEVEL)
    return torch.tensor([kind, norm, 8.0 * sends], dtype=torch.float64)


def as_bytes(*values: float) -> Tensor:
    return torch.tensor(values).view(torch.uint8)


def form() -> GradientForm:
    """Gradients as they are, of two values."""
    return GradientForm(None, Spec(((2,),)), 0)


def test_the_server_counts_a_longer_gradient_that_comes_after_its_stop() -> None:
    """Rank 2 is heard first with length 1; that seems to be all. Rank 1 had length 9, and comes late."""
    messages = Script(
        [
            (("head", 1), head(_Kind.TIMER_EXPIRED, 1.0)),
            (("gradient", 1), as_bytes(1.0, 0.0)),
            (("head", 2), head(_Kind.SILENT, 0.5)),
            (("head", 0), head(_Kind.ABOVE_LEVEL, 9.0)),
            (("gradient", 0), as_bytes(0.0, 9.0)),
        ]
    )
    cadence = Ordered(ServerPolicy(share=2.0, silence=False))
    server = _Server(cadence, messages, [1, 2, 3], 2, [form()] * 3)  # type: ignore[arg-type]
    mean, broken = server.iterate(torch.zeros(2))
    assert mean.tolist() == [1.0, 9.0] and broken is None
    assert (server.sent, server.withheld) == (2, 1)
    stops = [
        place for place, entry in enumerate(messages.log) if entry[0] == "sent" and entry[2] == [1.0, 0.0]
    ]
    late = next(place for place, entry in enumerate(messages.log) if entry[0] == "('head', 0)")
    assert stops and min(stops) < late  # it stopped at level 2 · 1 / 2, before it heard of the longer one


def test_a_worker_with_more_than_the_server_spares_sends_at_once() -> None:
    for level, kind in ((1.0, _Kind.ABOVE_LEVEL), (50.0, _Kind.SILENT)):
        stop = ("stop", torch.tensor([level, 0.0], dtype=torch.float64))
        messages = Script([stop, *CLOSING])
        worker = _Worker(
            Ordered(ServerPolicy(share=0.9), window_s=3600.0),
            messages,
            server=0,
            size=4,
            numel=2,
            form=form(),
        )  # type: ignore[arg-type]
        mean, _ = worker.iterate(torch.tensor([6.0, 8.0]))
        sent = [entry[2] for entry in messages.log if entry[0] == "sent"]
        assert sent[0] == [float(kind), 10.0, 8.0 * (kind is _Kind.ABOVE_LEVEL)]
        assert sent[1:] == ([as_bytes(6.0, 8.0).tolist()] if kind is _Kind.ABOVE_LEVEL else [])
        assert mean.tolist() == [3.0, 4.0]
        assert (worker.sent, worker.withheld) == (int(kind is _Kind.ABOVE_LEVEL), int(kind is _Kind.SILENT))


def test_a_worker_whose_time_comes_first_sends_before_the_stop() -> None:
    stop = ("stop", torch.tensor([1.0, 0.0], dtype=torch.float64))
    messages = Script([stop, *CLOSING])
    worker = _Worker(
        Ordered(ServerPolicy(share=0.9), window_s=1e-15), messages, server=0, size=4, numel=2, form=form()
    )  # type: ignore[arg-type]
    worker.iterate(torch.tensor([6.0, 8.0]))
    first = [entry[0] for entry in messages.log].index("sent")
    assert messages.log[first][2] == [float(_Kind.TIMER_EXPIRED), 10.0, 8.0]
    assert [entry[0] for entry in messages.log].index("stop") > first
