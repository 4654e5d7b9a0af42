"""Models that are split: clients have the lower layers and their data, a server has the upper layers.

server, client   `SplitServer` and `SplitClient`: parallel split learning, and EPSL by its share phi. Pure
aggregation      what the server computes with rows of several clients
messages         what crosses between them
local            all in one process; `ranks`: over a process group; `keyed`: over sealed links, whose clients
                 come, go and return
beside           federated averages of clients' layers (SFL), and clients in turns (sequential split learning)
latency          how long rounds take, by a model of computing and radio
vertical         parties that have different columns of the same rows
"""

from __future__ import annotations

from tweed.workloads.split.aggregation import CutGradients, Rows, ServerPass, aggregated_rows
from tweed.workloads.split.beside import federated_average, sequential_step
from tweed.workloads.split.client import SplitClient
from tweed.workloads.split.keyed import KeyedServer, train_keyed
from tweed.workloads.split.local import split_step
from tweed.workloads.split.ranks import serve_ranks, train_rank
from tweed.workloads.split.server import SplitServer
from tweed.workloads.split.vertical import VerticalLeader, VerticalParty

__all__ = [
    "CutGradients",
    "KeyedServer",
    "Rows",
    "ServerPass",
    "SplitClient",
    "SplitServer",
    "VerticalLeader",
    "VerticalParty",
    "aggregated_rows",
    "federated_average",
    "sequential_step",
    "serve_ranks",
    "split_step",
    "train_keyed",
    "train_rank",
]
