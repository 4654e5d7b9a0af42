"""How ranks that come from the fork server get into a process group."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tweed.testbed.host_network import HostNetwork
from tweed.testbed.rank_process import Rendezvous


@contextmanager
def rendezvous(backend: str | None, bed: HostNetwork | None) -> Iterator[Callable[[int], Rendezvous | None]]:
    """Gives a function from a rank to its way into a process group of `backend`; None for no group.

    Without a bed the socket of the ranks' store is opened here, on the loopback interface, so that it listens
    before any rank looks for it. In a bed, rank 0 opens it in its own namespace, and the others try again.
    """
    if backend is None:
        yield lambda rank: None
    elif bed is not None:
        shared = Rendezvous(backend, bed.hosts[0].address, bed.store_port(), None)
        yield lambda rank: shared
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            yield lambda rank: Rendezvous(backend, "127.0.0.1", port, listener if rank == 0 else None)
