"""What thousands of sealed members cost a hub: CPU for an offer and its answer, beside a bare echo by epoll;
memory; and whether those that stay are served when half of them vanish.

Members live in processes of their own, some thousand each, and do what they are told over their standard
input. The same offer may be said again after its grant, and is granted again: so an offer and its answer can
be counted alone. The first one of a task costs more, as it goes through the order.
"""

from __future__ import annotations

import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import psutil

from bench.units import grid, seconds, size

if TYPE_CHECKING:
    from bench.run import Row  # it has torch, which members and an echo do without

PART, GOAL = "hub links", 10.0  # times the CPU of an echo, at most
_PROCESSES, _ROUNDS = 4, 10
_NUMEL = 16_384  # 64 KB
_HEAD = struct.Struct("<8d")
_READY, _OFFER = 0, 1


def rows(members: int = 5000) -> Iterator[Row]:
    """One side after the other; CPU is that of the hub's process alone."""
    for side in ("echo", "hub"):
        yield {"part": PART, "side": side, "members": members, **_measured(side, members)}


def _measured(side: str, members: int) -> dict[str, Any]:
    with _process("served", side) as server:
        address, digest = _line(server).split()
        served = psutil.Process(server.pid)
        before = served.memory_info().rss
        each = members // _PROCESSES
        clients = [_process("clients", side, address, digest, str(each)) for _ in range(_PROCESSES)]
        try:
            began, cpu = time.monotonic(), _cpu(served)
            _all(clients, "join")
            joined = time.monotonic() - began, _cpu(served) - cpu
            cpu = _cpu(served)
            _all(clients, f"talk {_ROUNDS}")
            talked = _cpu(served) - cpu
            memory = served.memory_info().rss - before
            for client in clients[::2]:
                client.kill()
            _all(clients[1::2], f"talk {_ROUNDS}")  # fails if one of them is not answered
        finally:
            for process in (*clients, server):
                process.kill()
                process.wait()
    return {
        "join_s": round(joined[0] / members, 7),
        "join_cpu_s": round(joined[1] / members, 7),
        "cpu_s": talked / (each * _PROCESSES * _ROUNDS),
        "memory": memory // members,
    }


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _process(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.hub_links", *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        raise RuntimeError(f"{process.args} has ended")
    return line.strip()


def _all(clients: Sequence[subprocess.Popen[str]], order: str) -> None:
    for client in clients:
        assert client.stdin is not None
        client.stdin.write(order + "\n")
        client.stdin.flush()
    for client in clients:
        _line(client)


# The served side


def _hub() -> None:
    import torch

    import tweed
    from tweed.aggregate import Cache
    from tweed.collective import Hub
    from tweed.order import FirstIn
    from tweed.strategy import Strategy

    torch.set_num_threads(1)
    model = torch.nn.Linear(_NUMEL, 1, bias=False)
    strategy = Strategy(collective=Hub(0, when=Cache(100)), order=FirstIn(1 << 20))
    run = tweed.serve(model, torch.optim.SGD(model.parameters(), lr=0.1), strategy)
    print(run.address.partition("@")[2], run._members._digest, flush=True)
    run.serve()


def _echo() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"127.0.0.1:{listener.getsockname()[1]}", "none", flush=True)
    poll, callers = select.epoll(), {}
    poll.register(listener, select.EPOLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == listener.fileno():
                caller, _ = listener.accept()
                poll.register(caller, select.EPOLLIN)
                callers[caller.fileno()] = caller
            elif data := callers[descriptor].recv(4096):
                callers[descriptor].sendall(data)
            else:
                poll.unregister(descriptor)
                callers.pop(descriptor).close()


# Members


class _Member:
    """One that joins, takes a task, and describes what it has, again and again."""

    def __init__(self, address: str, digest: str) -> None:
        from tweed import _core
        from tweed.links import hello

        self._links = _core.HubLinks(patience_s=60.0)
        self._link = self._links.call(address)
        self._links.allow(self._link, 1 << 20)
        self._links.send(self._link, hello.packed({"terms": digest}))
        self._came: list[bytearray] = []
        self.hear()
        self._links.send(self._link, _HEAD.pack(_READY, 0, 0, 0, 0, 0, 0, 0))

    def say(self) -> None:
        self._links.send(self._link, _HEAD.pack(_OFFER, 1, 0, 4 * _NUMEL, 1, 1, 0, 0))

    def hear(self) -> None:
        while not self._came:
            for _, what in self._links.next(60.0):
                if isinstance(what, str):
                    raise RuntimeError(what)
                self._came += [what] if isinstance(what, bytearray) else []
        self._came.pop(0)


class _Caller:
    """The same for an echo, of as many bytes."""

    def __init__(self, address: str, digest: str) -> None:
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)))

    def say(self) -> None:
        self._socket.sendall(bytes(_HEAD.size))

    def hear(self) -> None:
        if not self._socket.recv(4096):
            raise RuntimeError("the echo has hung up")


def _clients(make: Callable[[str, str], Any], address: str, digest: str, count: int, orders: IO[str]) -> None:
    members: list[Any] = []
    for order in orders:
        if order.startswith("join"):
            members = [make(address, digest) for _ in range(count)]
            if make is _Member:
                for member in members:
                    member.hear()  # the task
        else:
            for _ in range(int(order.split()[1])):
                for member in members:
                    member.say()
                for member in members:
                    member.hear()
        print("done", flush=True)


def table(rows: Sequence[Row]) -> str:
    """What an answer, a member and its introduction cost."""
    found = {row["side"]: row for row in rows if row["part"] == PART}
    if not found:
        return ""
    body = [
        (
            {"echo": "bare echo by epoll, not sealed", "hub": "tweed"}[side],
            f"{row['members']:,}",
            seconds(row["cpu_s"]),
            "" if side == "echo" else f"{factor(rows):.1f} times",
            seconds(row["join_cpu_s"]),
            size(row["memory"]),
        )
        for side, row in found.items()
    ]
    head = (
        "side",
        "members",
        "CPU for an offer and its answer",
        "that of an echo",
        "CPU to join",
        "memory per member",
    )
    return f"## A hub's links\n\n{grid(head, body)}"


def factor(rows: Sequence[Row]) -> float | None:
    """CPU for an offer and its answer over that of an echo; None if there are no rows."""
    found = {row["side"]: row["cpu_s"] for row in rows if row["part"] == PART}
    return found["hub"] / found["echo"] if found else None


if __name__ == "__main__":
    kind, side, *rest = sys.argv[1:]
    if kind == "served":
        {"hub": _hub, "echo": _echo}[side]()
    else:
        _clients({"hub": _Member, "echo": _Caller}[side], rest[0], rest[1], int(rest[2]), sys.stdin)
