"""Prophet (Zhang et al., ICPP 2021), beside FIFO, P3, ByteScheduler and urgency in the engine. Simulated.

Parts: the orders of `tweed.order`, on the virtual link of `order.step`.

The paper's claim: blocks of gradients that end when the next burst comes train up to 40 % faster than the
best schedulers by priority. The experiment asks where: by model, rate, cost of a message, and exchange.

contenders   what is compared, and where
measured     steps, and the search for settings
audit        what Prophet is to keep to, checked on steps
report       goals and tables
"""

from __future__ import annotations

from collections.abc import Iterator

from tweed.report.notes import Notes
from tweed.systems import Headline, System
from tweed.systems.prophet.contenders import (
    ALL_REDUCE,
    FAST,
    MESSAGES_MS,
    MODELS,
    RATES,
    SERVER,
    Place,
)
from tweed.systems.prophet.measured import compared, misled, overhead, recognised, sweep_place
from tweed.systems.prophet.report import study

#: Shares of the true rate that Prophet is told; gradients over arithmetic, in time.
SHARES = (0.5, 0.8, 1.2, 2.0)
RATIOS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
#: Models of the sweep, and of the accelerator that is five times as fast.
WIDE = ("ResNet-50", "VGG-19")


def places(quick: bool) -> Iterator[Place]:
    """Where sides are compared."""
    for exchange in (SERVER, ALL_REDUCE):
        for model in ("ResNet-18",) if quick else MODELS:
            for gbit in (3.0,) if quick else RATES:
                for message_ms in (0.1,) if quick else MESSAGES_MS:
                    yield Place(model, exchange, gbit, message_ms)
    if not quick:
        for model in WIDE:
            for gbit in RATES:
                for message_ms in MESSAGES_MS:
                    yield Place(model, SERVER, gbit, message_ms, FAST)


def experiment(notes: Notes, quick: bool) -> None:
    """Measures what is not in the notes.

    Cost: some ten minutes of one core; quick: two seconds.
    """
    recognised(notes, 20 if quick else 1000)
    for place in places(quick):
        compared(notes, place)
    for model in () if quick else WIDE:
        for ratio in RATIOS:
            compared(notes, sweep_place(model, ratio), kind="sweep", ratio=ratio)
    for model in ("ResNet-18",) if quick else MODELS:
        for gbit in (3.0,) if quick else RATES:
            for share in SHARES:
                misled(notes, Place(model, SERVER, gbit, 0.1), share)
        overhead(notes, model, steps=3 if quick else 30)


SYSTEM = System(
    "Prophet, gradients in blocks that end when the next burst comes",
    "Zhang et al., ICPP 2021",
    "Prophet(bursts(profile_s))",
    experiment,
    study,
    headline=Headline(
        "up to 40 % faster training than the best scheduler by priority",
        "at best {}, and {} where a block is one message, which `Credit` gains too; simulated",
        (
            "Prophet as published: 40 % over the best tuned scheduler by priority, with a server",
            "Prophet, a block is one message: 40 % over the best tuned scheduler by priority, with a server",
        ),
        "Messages that cost a lot; where they are joined, `Credit` does as well.",
    ),
)
