"""One model split between parties: clients have the lower layers and their data, a server the upper ones.

rows      which rows of the clients' batches are aggregated, and back; pure
server    `SplitServer`: one step of the upper layers with the activations of all clients
client    `SplitClient`: activations up, gradients down through the lower layers
rounds    both in one process: parallel, federated and sequential split learning
ranks     both over a process group: a server on one rank, a client on each other
vertical  parties with other columns of the same rows; the one with the labels leads
latency   how long a round takes over radio links, which `exchange.allocation` makes short; pure

Source: Lin et al., "Efficient parallel split learning over resource-constrained wireless edge networks", IEEE
  TMC 2024, arXiv 2303.15991 (EPSL); SplitFed: Thapa et al., "SplitFed: when federated learning meets split
  learning", AAAI 2022.
"""

from __future__ import annotations

from tweed.workloads.split.client import SplitClient
from tweed.workloads.split.ranks import join, serve
from tweed.workloads.split.rounds import federated_round, parallel_round, sequential_round
from tweed.workloads.split.server import Replies, SplitServer
from tweed.workloads.split.vertical import VerticalLeader, VerticalParty, matched

__all__ = [
    "Replies",
    "SplitClient",
    "SplitServer",
    "VerticalLeader",
    "VerticalParty",
    "federated_round",
    "join",
    "matched",
    "parallel_round",
    "sequential_round",
    "serve",
]
