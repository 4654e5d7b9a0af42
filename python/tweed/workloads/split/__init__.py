"""Models that are split between parties: clients with the lower layers and their data, a server with the others.

server, client   `SplitServer` and `SplitClient`: parallel split learning, and EPSL by its share phi. Pure
aggregation      what the server computes with rows of several clients
messages         what crosses between them
local            all in one process; `ranks`: over a process group; `keyed`: over sealed links, whose clients
                 come, go and return
vertical         parties that have different columns of the same rows
"""

from __future__ import annotations

from tweed.workloads.split.aggregation import CutGradients, Rows, ServerPass, aggregated_rows
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
    "serve_ranks",
    "split_step",
    "train_keyed",
    "train_rank",
]
