"""Rounds of split learning by ranks in namespaces, whose links are short at the server or at clients."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from tweed.exchange.multicast import MulticastReceiver, MulticastSender
from tweed.exchange.stages import Cut
from tweed.report.notes import Notes
from tweed.systems.epsl.measured import perceptron
from tweed.testbed import Network, run_ranks, sent_bytes
from tweed.testbed.names import address
from tweed.workloads.split import SplitClient, SplitServer, serve_ranks, train_rank

#: Networks: rank 0 is the server.
PLACES = {
    "server": "rate=100mbit,0.up.rate=10mbit,0.down.rate=100mbit",
    "both ways": "rate=100mbit,0.rate=10mbit,0.queue=256kb",
    "uplinks": "rate=100mbit,up.rate=1mbit,0.up.rate=100mbit",
}
_GROUP = ("239.7.7.1", 7071)
_WARM = 2  # steps that are not counted


@dataclass(frozen=True, slots=True)
class Job:
    """What is timed: `how` is a value of phi, "unicast" (phi = 1 without multicast) or "codecs" (phi = 0)."""

    how: str
    batch: int
    steps: int

    @property
    def phi(self) -> float:
        """The share of rows that are aggregated."""
        return float({"unicast": "1", "codecs": "0"}.get(self.how, self.how))

    @property
    def cut(self) -> Cut | None:
        """The codecs; None: values cross as they are."""
        return Cut() if self.how == "codecs" else None


def live(notes: Notes, place: str, hows: tuple[str, ...], clients: int, batch: int, steps: int) -> None:
    """Seconds of steps, and bytes of links per step: a line of kind "live" for each side."""
    network = Network.parse(PLACES[place])
    for how in hows:
        if notes.has(kind="live", place=place, how=how):
            continue
        notes.log(f"{place}: {how}")
        job = Job(how, batch, steps)
        found = run_ranks(_rank, clients + 1, job, network=network, backend="tweed", timeout=300.0)
        facts = {"kind": "live", "place": place, "how": how, "clients": clients, "words": str(network)}
        sent = {"down_bytes": found[0]["bytes"], "up_bytes": max(one["bytes"] for one in found[1:])}
        notes.add({**facts, **sent, "steps_s": found[1]["steps_s"]})


def _rank(rank: int, size: int, job: Job) -> dict[str, object]:
    torch.manual_seed(rank)
    lower, upper = perceptron()
    module = upper if rank == 0 else lower
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    is_multicast = job.phi > 0 and job.how != "unicast"
    before, moments = sent_bytes() or 0, []
    if rank == 0:
        sender = MulticastSender(_GROUP, address(0)) if is_multicast else None
        server = SplitServer(module, optimizer, nn.functional.cross_entropy, job.phi, job.cut)
        serve_ranks(server, job.steps + _WARM, multicast=sender)
    else:
        receiver = MulticastReceiver(_GROUP, address(rank)) if is_multicast else None
        client = SplitClient(module, optimizer, job.cut)

        def batches() -> Iterator[tuple[Tensor, Tensor]]:
            for _ in range(job.steps + _WARM):
                moments.append(time.monotonic())
                yield torch.randn(job.batch, 784), torch.randint(10, (job.batch,))
            moments.append(time.monotonic())

        train_rank(client, batches(), multicast=receiver)
    steps_s = [end - begin for begin, end in pairwise(moments)][_WARM:]
    return {"steps_s": steps_s, "bytes": ((sent_bytes() or 0) - before) / (job.steps + _WARM)}
