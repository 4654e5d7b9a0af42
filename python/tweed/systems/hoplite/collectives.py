"""Collectives of arrays between actors on raylets, by tweed's objects and by what Ray has.

    python -m tweed.systems.hoplite collectives ADDRESS NODES ROUNDS BYTES...

is the driver, which prints a line per size, collective and side; the launcher opens a testbed and a cluster,
and runs it there. Raylets that share this host, and its network, the driver starts itself. Sides beside
tweed's: Ray's own objects; a binary tree of Ray's tasks, which sums; and `ray.util.collective` on Gloo, whose
members are known before.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import psutil

from tweed.ray.installed import require_ray
from tweed.systems.hoplite.sides import COLLECTIVES, Worker, delete, right, round_of
from tweed.testbed import Network, opened
from tweed.testbed.counters import HEADER_BYTES, PAYLOAD_BYTES
from tweed.testbed.ray_cluster import STORE_BYTES, ray_cluster

#: Of a link: such that the processors of the machine, which all raylets share, are no bottleneck; and of each
#: of more nodes than that.
RATE_MBIT, RATE_MBIT_OF_MANY, MANY = 16, 8, 12
#: The payload of a full packet, as a share of its bytes on the link.
_PAYLOAD = PAYLOAD_BYTES / (PAYLOAD_BYTES + HEADER_BYTES)
#: Of the collectives those that are measured with many nodes, and between raylets of one host.
BASIC, ON_ONE_HOST = ("broadcast", "sum", "all_reduce"), ("all_reduce",)
MOST_OF_ALL = 8
#: In place of a collective: getting a small object that is there, beside a call that does nothing.
LOOK_UP, LOOK_UPS = "look-up", 200
#: Up to so many bytes latency counts, and there are more rounds.
SMALL_BYTES = 64 << 10
#: In place of a cluster's address: raylets of this host, where all objects are in its memory.
HERE = "here"
#: What drives a cluster from one of its nodes; the name of the driver and its words follow.
PROGRAM = (sys.executable, "-m", "tweed.systems.hoplite")


def rate_mbit(nodes: int) -> int:
    """The rate of each link of so many nodes."""
    return RATE_MBIT_OF_MANY if nodes > MANY else RATE_MBIT


def sizes(nodes: int) -> tuple[int, int, int]:
    """Bytes of arrays: what a link of so many nodes takes half a second for, and a tenth, and a small one."""
    return rate_mbit(nodes) * 62_500, rate_mbit(nodes) * 12_500, 1_024


def payload_rate(nodes: int) -> float:
    """Bytes of payload per second: the B of S/B."""
    return rate_mbit(nodes) * 125_000 * _PAYLOAD


def measure(nodes: int, rounds: int) -> Iterator[Mapping[str, Any]]:
    """Runs all sides on so many nodes, each behind a link of `rate_mbit`, with arrays of `sizes`.

    Args:
      rounds: of each collective and side; four times as many of small arrays.

    Returns: a line per size, collective and side, with `seconds` per round, and how `busy` the processors
      were meanwhile, as a share of all; work at a lower priority (`nice`) does not count.

    Raises: NoTestbed where namespaces cannot be made; UsageError where Ray is missing.

    Cost: 10 s of a processor per node, and the rounds.
    """
    words = [*map(str, (nodes, rounds, *sizes(nodes)))]
    yield from in_cluster(nodes, "collectives", words)


def on_one_host(nodes: int, sizes: Sequence[int], rounds: int) -> Iterator[Mapping[str, Any]]:
    """All-reduces of such arrays between raylets of this host; lines as `measure` has them.

    Raises: UsageError where Ray is missing.
    """
    require_ray()
    words = (HERE, *map(str, (nodes, rounds, *sizes)))
    yield from _lines([*PROGRAM, "collectives", *words])


def in_cluster(nodes: int, driver: str, words: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """The lines that a driver prints which is run on the first node of a cluster, after its address.

    Raises: NoTestbed where namespaces cannot be made; UsageError where Ray is missing.
    """
    with opened(Network.parse(f"rate={rate_mbit(nodes)}mbit"), nodes) as bed, ray_cluster(bed) as cluster:
        yield from _lines(cluster.command(0, *PROGRAM, driver, cluster.address, *words))


def _lines(program: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    done = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True)
    for line in done.stdout.splitlines():
        if line.startswith("{"):  # Ray prints there too, of actors that have died
            yield json.loads(line)


class _Busy:
    """How busy the processors are. Work at a lower priority makes way, and does not count."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    def share(self) -> float:
        """Since it was made, as a share of all processors."""
        now = psutil.cpu_times()
        spent = [after - before for after, before in zip(now, self._before, strict=True)]
        idle = sum(spent[now._fields.index(field)] for field in ("idle", "iowait", "nice"))
        total = sum(spent) - sum(spent[now._fields.index(field)] for field in ("guest", "guest_nice"))
        return 1 - idle / total if total else 0.0


def _rounds(actors: Sequence[Any], nbytes: int, name: str, rounds: int) -> Iterator[dict[str, Any]]:
    """A line for each side, which take turns; the first round opens links.

    Raises: ValueError if a side's result is wrong.
    """
    sides, wanted = COLLECTIVES[name], {right(name, len(actors))}
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    busy: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(1 + (4 * rounds if nbytes <= SMALL_BYTES else rounds)):
        for side in sides:
            processors = _Busy()
            took, found = round_of(actors, side, name, nbytes / payload_rate(len(actors)))
            if found != wanted:
                raise ValueError(f"{side}: a wrong {name}, {found} where {wanted} is right")
            seconds[side].append(took)
            busy[side].append(processors.share())
    for side in sides:
        line = {"bytes": nbytes, "collective": name, "side": side, "seconds": seconds[side][1:]}
        yield line | {"busy": max(busy[side][1:])}


def _look_ups(actors: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Gets of small objects of another actor; and calls of that one from here, each after the other."""
    import ray

    refs = ray.get(actors[1].put_small.remote(LOOK_UPS))
    seconds = {"tweed": ray.get(actors[2].look_up.remote(refs)), "ray": []}
    for _ in range(LOOK_UPS):
        began = time.monotonic()
        ray.get(actors[2].nothing.remote())
        seconds["ray"].append(time.monotonic() - began)
    delete(refs, "tweed")
    for side, found in seconds.items():
        yield {"bytes": 4, "collective": LOOK_UP, "side": side, "seconds": found, "busy": 0.0}


def drive(address: str, nodes: int, rounds: int, sizes: Sequence[int], out: Callable[[str], object]) -> None:
    """The driver: an actor per node, then all rounds, the sides in turn.

    Raises: ValueError if a side's result is wrong.
    """
    import ray

    cluster = _started(nodes) if address == HERE else None
    ray.init(address if cluster is None else cluster.address, log_to_driver=False)
    remote: Any = ray.remote(Worker)
    options = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
    actors = [remote.options(**options).remote(rank, nodes) for rank in range(nodes)]
    ray.get([actor.meet.remote() for actor in actors])
    names = ON_ONE_HOST if cluster is not None else BASIC if nodes > MOST_OF_ALL else tuple(COLLECTIVES)
    for nbytes in sizes:
        ray.get([actor.resize.remote(nbytes) for actor in actors])
        for name in names:
            for line in _rounds(actors, nbytes, name, rounds):
                out(json.dumps(line))
    for line in _look_ups(actors) if cluster is None else ():
        out(json.dumps(line))
    ray.shutdown()
    if cluster is not None:
        cluster.shutdown()


def _started(nodes: int) -> Any:
    """Raylets of this host, as Ray's own tests start them."""
    from ray.cluster_utils import Cluster

    each: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={**each, "include_dashboard": False})
    for _ in range(nodes - 1):
        cluster.add_node(**each)
    return cluster


def main(words: Sequence[str]) -> None:
    """The driver from the command line: prints a line for each measurement."""
    address, *numbers = words
    nodes, rounds, *sizes = map(int, numbers)
    drive(address, nodes, rounds, sizes, lambda text: print(text, flush=True))
