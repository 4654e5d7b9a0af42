"""Sides by the keys that notes have, and the places where they are timed. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tweed.cadence import LocalSteps, Nesterov
from tweed.compress import Chain, Direct, ErrorFeedback, LowRank, Quantise, Sign, TopK
from tweed.recipes.named import named_strategy
from tweed.strategy import Strategy
from tweed.systems.harness.time_to_accuracy import ALONE, DDP
from tweed.systems.harness.training import Method

WORKERS = 4
#: Of links; and where nothing that is compressed pays.
RATES, FASTEST = ("10mbit", "100mbit", "1gbit"), "10gbit"
#: Packets that are lost, for docs/choosing.md.
LOSSES = ("0 %", "0.1 %", "1 %", "3 %")
#: Congestion control that peers are timed with too, where packets are lost or round trips are long.
BBR = "bbr"
POWERSGD, BF16 = "DDP, PowerSGD", "DDP, bf16"
DILOCO, OFTEN, SPARSE = "DiLoCo", "DiLoCo, every 8", "SparseLoCo settings"
#: Fragments, a delay and 4 bits.
STREAMING = "Streaming DiLoCo settings"
#: Others' ways to train, DDP first; all the rest is ours.
PEERS = (DDP, BF16, POWERSGD, DILOCO, OFTEN, SPARSE, STREAMING)
EVERY, LOCAL, FEW = "every step", "local 8", "local 8, top-k 10 %"
FED = f"{FEW}, memory"
SIGNED = f"{LOCAL}, sign, memory"
FOUR = "local 4, top-k 5 %, memory"
#: With steps during an exchange.
LATER = tuple(f"{FOUR}, {more}" for more in ("delay 1", "delay 2", "delay 2, 2 fragments", "delay 4"))
#: Links with a round trip.
FAR = "100mbit,rtt=40ms"
FAR_PLACES = ("10mbit,rtt=40ms", FAR)
#: Lines of the times of these sides, which are taken apart from those of all sides.
LATER_TIMES = "overlapped_times"
LATER_SIDES = (ALONE, DDP, BF16, POWERSGD, OFTEN, DILOCO, STREAMING, FOUR, *LATER)
#: Parts added one at a time.
LADDER = (EVERY, LOCAL, SIGNED)
#: The side that chooses by what it measures of the link, and the one that turns compression off.
AUTO, OFF = "local 8, auto", "every step, auto"
#: The named strategies among the sides.
NAMED = {
    EVERY: "every_step",
    "DCT": "dct(sparsity=0.99)",
    "CSER": "cser(ratio=256, reset_ratio=16, every=32)",
    "SAEF": "saef(density=0.01, average_every=32)",
    FED: "local_top_k(every=8, density=0.1)",
    SIGNED: "local_sign:8",
    FOUR: "local_top_k(every=4, density=0.05)",
    LATER[0]: "overlapped_top_k",
    LATER[1]: "local_top_k(every=4, density=0.05, delay=2)",
    LATER[2]: "local_top_k(every=4, density=0.05, delay=2, fragments=2)",
    LATER[3]: "local_top_k(every=4, density=0.05, delay=4)",
    AUTO: "auto(every=8)",
    DILOCO: "diloco(every=32)",
    OFTEN: "diloco(every=8)",
    SPARSE: "local_top_k(every=16, density=0.03, bits=2)",
}

#: A second task, a transformer on text, and the links behind which it is timed. Its sides are those of the
#: first one, with this before their keys, and all with AdamW.
TEXT, TEXT_TASK, TEXT_PLACES = "text: ", "shakespeare-large", FAR_PLACES
TEXT_SIDES = (ALONE, DDP, BF16, POWERSGD, OFTEN, STREAMING, FED, SIGNED, FOUR, *LATER[:2])


def place(rate: str, loss: str) -> str:
    """Where sides have turns, as notes have it: rates of `RATES` go by their names where nothing is lost."""
    return rate if rate in RATES and loss == LOSSES[0] else f"{rate},loss={loss.replace(' ', '')}"


def congested(where: str, control: str) -> str:
    """A place where TCP has that congestion control. It has cubic in others."""
    return f"{where},congestion={control}"


def _named(key: str, period: int = 1, optimizer: Literal["sgd", "adamw"] = "sgd", warm: int = 0) -> Method:
    return Method(key, named_strategy(NAMED[key]), period, optimizer, warm=warm)


#: The largest values in 4 bits each, their indices coded; the reply likewise.
_FEW = Chain(TopK(0.1), Quantise(bits=4, nearest=True), bidirectional=True)
_FOUR_BITS = ErrorFeedback(Quantise(bits=4, nearest=True))
#: All sides, peers first. `ALONE` exchanges nothing and is no side: it shows what computing takes.
METHODS = (
    Method(ALONE, "alone"),
    Method(DDP, "ddp"),
    Method(BF16, "bf16"),
    Method(POWERSGD, "powersgd", warm=4),
    _named(EVERY),
    Method("8 bits", Strategy(compress=ErrorFeedback(Quantise(bits=8, nearest=True)))),
    Method("sign", Strategy(compress=ErrorFeedback(Sign()))),
    Method("top-k 1 %", Strategy(compress=ErrorFeedback(TopK(0.01)))),
    Method("low rank 4", Strategy(compress=ErrorFeedback(LowRank(4)))),
    _named("DCT"),
    _named("CSER", 32),
    _named("SAEF", 32),
    Method(LOCAL, Strategy("difference", LocalSteps(8)), 8),
    Method(FEW, Strategy("difference", LocalSteps(8), Direct(_FEW)), 8),
    _named(FED, 8),
    Method("local 8, 4 bits, memory", Strategy("difference", LocalSteps(8), _FOUR_BITS), 8),
    _named(SIGNED, 8),
    Method("local 4, 4 bits, memory", Strategy("difference", LocalSteps(4), _FOUR_BITS), 4),
    _named(FOUR, 4),
    *(_named(side, 4) for side in LATER),
    # In its first exchanges "auto" tries what it may choose.
    _named(AUTO, 8, warm=8 * 20),
    _named(DILOCO, 32, "adamw"),
    _named(OFTEN, 8, "adamw"),
    _named(SPARSE, 16, "adamw"),
    Method(
        STREAMING,
        Strategy("difference", LocalSteps(32, Nesterov(), delay=4, fragments=4), Direct(Quantise(bits=4))),
        32,
        "adamw",
    ),
)
TEXT_METHODS = tuple(
    replace(side, key=TEXT + side.key, optimizer="adamw") for side in METHODS if side.key in TEXT_SIDES
)
