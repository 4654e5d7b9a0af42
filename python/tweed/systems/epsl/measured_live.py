"""Rounds of split learning on ranks: a server whose port is what is short, and clients with slow uplinks."""

from __future__ import annotations

import time
from statistics import median

import torch
from torch import nn

from tweed.compress import Identity, Quantise
from tweed.exchange.stages import Cut
from tweed.experiments.notes import Notes
from tweed.testbed import Network, run_ranks, sent_bytes
from tweed.workloads.split import SplitClient, SplitServer, join, serve

#: By key: the network, the share of rows that are aggregated, and bits of values (None: as they are).
CASES: dict[str, tuple[str, float, int | None]] = {
    "server's port, phi 0": ("rate=200mbit,0.rate=20mbit", 0.0, None),
    "server's port, phi 0.5": ("rate=200mbit,0.rate=20mbit", 0.5, None),
    "server's port, phi 1": ("rate=200mbit,0.rate=20mbit", 1.0, None),
    "slow uplinks, phi 0": ("rate=200mbit,up.rate=5mbit,0.up.rate=200mbit", 0.0, None),
    "slow uplinks, phi 1": ("rate=200mbit,up.rate=5mbit,0.up.rate=200mbit", 1.0, None),
    "slow uplinks, phi 0, 8 bits": ("rate=200mbit,up.rate=5mbit,0.up.rate=200mbit", 0.0, 8),
}
_INPUTS, _CLASSES = 64, 10
_WARM = 2


def live(notes: Notes, clients: int, width: int, batch: int, rounds: int) -> None:
    """Lines of kind "live": median seconds of a round, and bytes that the server's link sent per round."""
    for key, (network, phi, bits) in CASES.items():
        if notes.has(kind="live", case=key):
            continue
        notes.log(f"live: {key}")
        args = (phi, bits, width, batch, rounds)
        found = run_ranks(
            _party, clients + 1, *args, backend="tweed", network=Network.parse(network), timeout=300
        )
        seconds, sent = found[0]
        notes.add({"kind": "live", "case": key, "clients": clients, "seconds": seconds, "sent": sent})


def _party(
    rank: int, size: int, phi: float, bits: int | None, width: int, batch: int, rounds: int
) -> tuple[float, float]:
    torch.set_num_threads(1)
    cut = Cut(Identity(), Identity()) if bits is None else Cut(Quantise(bits, nearest=True), Quantise(bits))
    generator = torch.Generator().manual_seed(rank)
    if rank:
        lower = nn.Linear(_INPUTS, width)
        client = SplitClient(lower, torch.optim.SGD(lower.parameters(), lr=0.01))
        x = torch.randn(batch, _INPUTS, generator=generator)
        join(client, [(x, torch.arange(batch) % _CLASSES)] * (rounds + _WARM), cut=cut)
        return 0.0, 0.0
    upper = nn.Sequential(nn.ReLU(), nn.Linear(width, _CLASSES))
    server = SplitServer(upper, torch.optim.SGD(upper.parameters(), lr=0.01), phi)
    serve(server, _WARM, cut)
    taken, before = [], sent_bytes() or 0
    for _ in range(rounds):
        began = time.monotonic()
        serve(server, 1, cut)
        taken.append(time.monotonic() - began)
    return median(taken), ((sent_bytes() or 0) - before) / rounds
