"""Closed by default: what a secret opens, and what is refused without one."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tweed._core import Node
from tweed.errors import TweedError, UsageError
from tweed.testbed import run_ranks

SECRET = "open sesame, open sesame"


def total(rank: int, size: int, settings: list[dict[str, str]]) -> Any:
    """The sum over the ranks, or the words of the error. Each rank has settings of its own."""
    os.environ.update({"TWEED_TRANSPORT": "tcp"} | settings[rank])
    assert not dist.is_initialized()
    file = settings[rank]["STORE"]
    try:
        dist.init_process_group("tweed", store=dist.FileStore(file, size), rank=rank, world_size=size)
        tensor = torch.full((100_000,), float(rank + 1))
        dist.all_reduce(tensor)
        dist.barrier()
        return set(tensor.tolist())
    except TweedError as error:
        return str(error)


def totals(tmp_path: Path, *settings: dict[str, str]) -> list[Any]:
    store = {"STORE": str(tmp_path / "store")}
    return run_ranks(total, len(settings), [store | each for each in settings])


GIVEN = {"TWEED_SECRET": SECRET}
WRONG = {"TWEED_SECRET": "another sesame, another"}
DIALS = {"TWEED_DIAL_ONLY": "1"}
NEAR = {"TWEED_TRANSPORT": "auto"}


@pytest.mark.parametrize("second", [GIVEN, GIVEN | DIALS], ids=["all listen", "one only dials out"])
def test_sums_are_right_with_a_secret(tmp_path: Path, second: dict[str, str]) -> None:
    assert totals(tmp_path, GIVEN, second, GIVEN) == [{6.0}] * 3


#: What each of three ranks is given, and what all are told.
REFUSED: dict[str, tuple[list[dict[str, str]], list[str]]] = {
    # With the rank that it met first.
    "a wrong secret": ([GIVEN, WRONG, GIVEN], ["wrong secret", "rank 1 on"]),
    "a neighbour without a secret": ([GIVEN | NEAR, NEAR, GIVEN | NEAR], ["rank 1 on", "secret"]),
    "a neighbour with another secret": (
        [GIVEN | NEAR, WRONG | NEAR, GIVEN | NEAR], ["wrong secret", "rank 1 on"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_secret_is_named_at_all_ranks(tmp_path: Path, case: str) -> None:
    given, words = REFUSED[case]
    for text in totals(tmp_path, *given):
        assert all(word in text for word in words)
        assert "sesame" not in text


def test_two_that_only_dial_out_are_told_so(tmp_path: Path) -> None:
    for text in totals(tmp_path, DIALS, DIALS):
        assert all(word in text for word in ("rank 0", "rank 1", "only dial out", "TWEED_DIAL_ONLY"))


def test_two_that_only_dial_out_sum_where_a_third_one_listens(tmp_path: Path) -> None:
    assert totals(tmp_path, GIVEN, GIVEN | DIALS, GIVEN | DIALS) == [{6.0}] * 3


def test_without_a_secret_only_loopback_is_open() -> None:
    with pytest.raises(UsageError, match=r"without a secret nothing listens on 192\.0\.2\.1.*TWEED_SECRET"):
        Node(host="192.0.2.1")
    with pytest.raises(UsageError, match="no address to call"):
        Node(host="0.0.0.0", secret=SECRET)
    with pytest.raises(UsageError, match=r"must be an address of this machine.*::1 where all"):
        Node(host="192.0.2.1", secret=SECRET)


def test_the_namespace_of_a_testbed_is_open_too() -> None:
    here = os.readlink("/proc/self/ns/net")
    with pytest.raises(UsageError, match="must be an address of this machine"):
        Node(host="192.0.2.1", testbed=here)
    with pytest.raises(UsageError, match="without a secret"):
        Node(host="192.0.2.1", testbed="net:[1]")


def test_a_secret_that_is_no_good_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="openssl rand -hex 32"):
        Node(secret="short")
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        Node(secret_file=file)
    file.chmod(0o600)
    with pytest.raises(UsageError, match="different secrets"):
        Node(secret_file=file, secret="another sesame, another")
    assert SECRET.encode() not in Node(secret_file=file, secret=SECRET).card()


def test_a_key_file_is_made_and_kept_to_oneself(tmp_path: Path) -> None:
    file = tmp_path / "key"
    cards = [Node(secret=SECRET, key_file=file).card() for _ in range(2)]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().strip().encode() not in cards[0]
    assert cards[0].split(b'"key":"')[1][:64] == cards[1].split(b'"key":"')[1][:64]


def listeners() -> list[str]:
    """Addresses on which this process listens, as the kernel writes them: hex, backwards."""
    descriptors = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    own = {os.readlink(path) for path in descriptors if os.path.islink(path)}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in own:
                found.append(local.rpartition(":")[0])
    return found


def listening(rank: int, size: int, transport: str) -> list[str]:
    dist.all_reduce(torch.ones(8))
    return listeners()


@pytest.mark.parametrize("transport", ["tcp", "auto"])
def test_ranks_listen_on_loopback_only(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's port, where it is needed, and the store's, which rank 0 keeps."""
    monkeypatch.setenv("TWEED_TRANSPORT", transport)
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    found = run_ranks(listening, 2, transport, backend="tweed")
    assert found[0], "rank 0 keeps the store"
    assert all(set(addresses) <= loopback for addresses in found)
    # Of two, one is called over TCP; nobody is where all share memory.
    assert sum(map(len, found)) == (2 if transport == "tcp" else 1)
