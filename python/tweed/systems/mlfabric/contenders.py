"""Contenders and places, by the keys that notes have. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tweed.aggregate import Quorum
from tweed.collective import Hub
from tweed.order import FirstIn
from tweed.recipes import mlfabric, quantised
from tweed.strategy import Strategy
from tweed.systems.mlfabric.cluster_training import Place

OURS, ASYNC, RING, TREE = "MLfabric", "plain asynchronous", "ring", "tree"
SUMS = "MLfabric, aggregators"
FEW_BITS, PACKED_RING = "MLfabric, 8 bits", "ring, 8 bits"
#: Rings by how many members they do not wait for, of whom the search takes the best; and a server.
SPARES = {spare: f"{spare} spare workers, ring" for spare in (3, 6, 9)}
SPARE_SERVER = "spare workers, server"
#: Variants, which are in no goal, and how each differs; trained where a transfer is short.
VARIANTS: dict[str, dict[str, Any]] = {"momentum": {"momentum": 0.9}, "32 samples": {"batch": 32}}
#: By key of a variant: whose it is, and of which.
VARIED = {
    f"{name}, {variant}": (name, variant) for name in (OURS, RING, *SPARES.values()) for variant in VARIANTS
}
#: A transfer takes so much of a step; on uneven and on even clusters.
SMALL, WIDE = (Place("C3", "N-dynamic", share) for share in (0.02, 0.08))
MILD = Place("C1", "N-static", 0.02)
MAP = tuple(Place("C3", "N-dynamic", share) for share in (0.005, 0.01, 0.04, 0.16))

MEMBERS = 30
STEP: dict[str, Any] = {"strategy": Strategy()}


def contenders(place: Place, members: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The contenders at a place, by key, and how each differs."""
    ours = mlfabric(most=2 * members + 4)
    yield OURS, {"strategy": ours}
    yield ASYNC, {"strategy": Strategy(collective=Hub(0))}
    yield RING, STEP
    for spare, name in SPARES.items() if members > max(SPARES) + 1 else ():
        yield name, {**STEP, "spare": spare}
    if place in MAP:
        return
    yield SUMS, {"strategy": mlfabric(most=2 * members + 4, at_once=members, aggregators=members // 5)}
    yield TREE, {**STEP, "builder": "double_binary_tree"}
    waiting = Hub(0, Quorum(members - members // 10))  # late ones count in the next update
    yield SPARE_SERVER, {"strategy": Strategy(collective=waiting, order=FirstIn(members))}
    if place == WIDE:
        yield FEW_BITS, {"strategy": mlfabric(most=2 * members + 4, bits=8)}
        yield PACKED_RING, {"strategy": quantised()}
