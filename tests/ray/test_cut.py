"""Objects of processes that live, and do not reach each other for a while: namespaces, cut and healed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tweed.errors import TweedError
from tweed.ray.objects import Objects, Ref
from tweed.testbed import Network, Ranks, Said, opened, say

#: A link that is silent for half of it has ended, and for the other half its process is called anew.
DEADLINE_S = 4.0
NETWORK = Network.parse("rate=100mbit")
NUMEL = 6 << 20  # two seconds of a link
UNDER_WAY = (
    2 << 20
)  # beside three blocks: of a receiver that is late its feeder does not know what it has taken
REF, NEXT, LAST = Ref(7), Ref(8), Ref(9)


def _met(rank: int, size: int, addresses: Sequence[str], folder: str) -> Objects:
    """A process that the others have met."""
    objects = Objects(address=f"{addresses[rank]}:0", secret="of the test, of objects", deadline=DEADLINE_S)
    written = Path(folder) / str(rank)
    written.with_suffix(".new").write_bytes(objects.descriptor)
    written.with_suffix(".new").rename(written)
    others = [Path(folder) / str(other) for other in range(rank + 1)]
    while not all(other.exists() for other in others):
        time.sleep(0.01)
    assert objects.meet([other.read_bytes() for other in others]) == {}
    say("met")
    return objects


def _pulls(rank: int, size: int, addresses: Sequence[str], folder: str) -> tuple[float, int, int] | None:
    """Rank 1 gets what rank 0 has, and says so when it has begun.

    Returns: the last value, the bytes that came twice, and those of what came first: a block or more.
    """
    with _met(rank, size, addresses, folder) as objects:
        if rank == 0:
            objects.put(np.arange(NUMEL, dtype=np.float32), REF)
            objects.get(NEXT, timeout=60).result()
            objects.put(np.zeros(1), LAST)
            objects.get(Ref.new(), timeout=0.2).exception()
            return None
        array = objects.get(REF, timeout=60)
        _, first = next(objects.blocks(REF, timeout=60))
        say("has begun")
        value = float(array.result()[-1])
        objects.put(np.zeros(1), NEXT)
        objects.get(LAST, timeout=60).result()
        return value, objects.taken_twice, first.nbytes


def _waits(rank: int, size: int, addresses: Sequence[str], folder: str) -> str:
    """Returns the error of a get for which the other one is needed."""
    with _met(rank, size, addresses, folder) as objects:
        while True:
            try:
                objects.get(Ref.new(), timeout=0.5).result()
            except TweedError as error:
                if "Lost since" in str(error):
                    return str(error)


def _hears(ranks: Ranks, what: str, times: int) -> None:
    while times:
        times -= sum(isinstance(event, Said) and event.value == what for event in ranks.poll(10.0))


def test_a_pull_goes_on_when_the_two_reach_each_other_again(namespaces: None, tmp_path: Path) -> None:
    with opened(NETWORK, 2) as bed:
        addresses = [host.address for host in bed.hosts]
        with Ranks(_pulls, 2, addresses, str(tmp_path), bed=bed) as ranks:
            _hears(ranks, "has begun", 1)
            bed.cut(1)
            assert ranks.poll(DEADLINE_S * 0.7) == []  # by now the link has ended at both
            bed.heal(1)
            _, got = ranks.join(60)
    assert got is not None
    value, twice, block = got
    print(f"{twice} bytes came twice, blocks have at most {block}")
    assert value == NUMEL - 1 and 0 < twice <= 3 * block + UNDER_WAY


def test_who_cannot_be_reached_until_the_deadline_is_lost_and_named(namespaces: None, tmp_path: Path) -> None:
    with opened(NETWORK, 2) as bed:
        addresses = [host.address for host in bed.hosts]
        with Ranks(_waits, 2, addresses, str(tmp_path), bed=bed) as ranks:
            _hears(ranks, "met", 2)
            bed.cut(0)
            texts = ranks.join(60)
    for rank, text in enumerate(texts):
        assert addresses[1 - rank] in text and "called anew" in text, text
