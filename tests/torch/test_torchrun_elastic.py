"""`torchrun --rdzv-backend tweed`: an agent dies or joins, and nobody else's workers are restarted."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
from torch.distributed.elastic.rendezvous import RendezvousParameters, RendezvousTimeoutError
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from tests.elastic.loops import undisturbed
from tests.torch.agents import ROOT, free_port
from tweed.torch.torchrun import AGENT, JOIN, Directory, TweedRendezvous

SCRIPT, TIMEOUT_S = ROOT / "tests" / "torch" / "elastic_worker.py", 60.0


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < end, f"not within {TIMEOUT_S:g} s: {what}"
        time.sleep(0.02)


class Agents:
    """torchrun's agents on this host, each with so many workers."""

    def __init__(self, folder: Path, witness: str, workers: int) -> None:
        self._workers = workers
        self.folder, self._endpoint, self._witness = folder, f"127.0.0.1:{free_port()}", witness
        self.agents: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Another agent."""
        here = {key: value for key, value in os.environ.items() if not key.startswith("TWEED_")}
        here |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "AGENT": name, "WITNESS": self._witness}
        place = ("--rdzv-backend", "tweed", "--rdzv-endpoint", self._endpoint, "--rdzv-id", "a-run")
        place += ("--nproc-per-node", str(self._workers))
        conf = ("--nnodes", "1:4", "--rdzv-conf", "last_call_timeout=3", "--max-restarts", "3")
        command = (sys.executable, "-m", "torch.distributed.run", *place, *conf, "--monitor-interval", "0.1")
        with (self.folder / f"{name} log").open("wb") as log:
            self.agents[name] = subprocess.Popen(
                [*command, str(SCRIPT), str(self.folder)], stdout=log, stderr=log, env=here
            )

    def has_directory(self) -> bool:
        """Somebody listens at the endpoint."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", int(self._endpoint.rpartition(":")[2]))) == 0

    def lives(self, name: str) -> list[int]:
        """Process ids of its workers so far."""
        return [int(line) for line in (self.folder / f"{name} lives").read_text().split()]

    def now(self, name: str) -> tuple[int, int]:
        """Steps and members of its worker."""
        file = self.folder / f"{name} now"
        counted, members = file.read_text().split() if file.exists() else (0, 0)
        return int(counted), int(members)

    def together(self, *names: str) -> None:
        """Until these, and nobody else, train for some steps."""
        for name in names:
            until(lambda name=name: self.now(name)[1] == len(names), f"{name} with {names}")
            begun = self.now(name)[0]
            until(lambda name=name, begun=begun: self.now(name)[0] > begun + 20, f"steps of {name}")

    def die(self, name: str) -> None:
        """As its machine does: agent and workers at once."""
        for pid in (self.agents[name].pid, *self.lives(name)[-self._workers :]):
            os.kill(pid, signal.SIGKILL)
        self.agents[name].wait()

    def end(self, name: str, code: int = 0) -> tuple[int, list[int], torch.Tensor]:
        """Of its worker, when its agent is done."""
        found = self.agents[name].wait(TIMEOUT_S)
        assert found == code, (self.folder / f"{name} log").read_text()
        end: tuple[int, list[int], torch.Tensor] = torch.load(self.folder / f"{name} end")
        return end


@contextmanager
def agents(folder: Path, workers: int = 1) -> Iterator[Agents]:
    """None of them is left behind."""
    state = folder / "witness"
    command = (sys.executable, "-m", "tweed", "witness", "--listen", "127.0.0.1:0", "--state", str(state))
    witness = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert witness.stdout is not None  # a pipe
    found = Agents(folder, re.findall(r"[0-9a-f]{64}@[\d.:]+", witness.stdout.readline())[0], workers)
    try:
        yield found
    finally:
        witness.kill()
        witness.wait()
        for name, agent in found.agents.items():
            agent.kill()
            agent.wait()
            if (folder / f"{name} lives").exists():
                for pid in found.lives(name)[-workers:]:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


def test_an_agent_dies_and_another_joins_and_the_third_goes_on(tmp_path: Path) -> None:
    with agents(tmp_path) as job:
        job.start("a")
        until(job.has_directory, "a holds the directory")
        job.start("b")
        job.together("a", "b")
        job.die("a")
        job.together("b")
        job.start("c")
        job.together("b", "c")
        os.kill(job.lives("c")[-1], signal.SIGKILL)  # its agent starts another one, which joins
        until(lambda: len(job.lives("c")) == 2, "another life of c's worker")
        job.together("b", "c")
        assert len(job.lives("b")) == 1
        job.agents["c"].terminate()  # torchrun hands it to the worker, which leaves in good order
        left = job.end("c", code=1)
        job.together("b")
        (tmp_path / "stop").touch()
        stayed = job.end("b")
    assert len(left[1]) == 1 and left[0] < stayed[0]
    for counted, _, flat in (left, stayed):
        assert torch.allclose(flat, undisturbed(counted), rtol=0, atol=1e-11)


@pytest.mark.skipif("TWEED_TEST_INTEGRATIONS" not in os.environ, reason="half a minute: make integrations")
def test_the_workers_of_an_agent_are_one_member_and_start_anew_together(tmp_path: Path) -> None:
    with agents(tmp_path, workers=2) as job:
        job.start("a")
        until(job.has_directory, "a holds the directory")
        job.start("b")
        job.together("a", "b")
        os.kill(job.lives("b")[-1], signal.SIGKILL)
        until(lambda: len(job.lives("b")) == 4, "both of b's workers again")
        job.together("a", "b")
        assert len(job.lives("a")) == 2
        job.agents["b"].terminate()
        left = job.end("b", code=1)
        job.together("a")
        (tmp_path / "stop").touch()
        stayed = job.end("a")
    assert left[0] < stayed[0]
    for counted, _, flat in (left, stayed):
        assert torch.allclose(flat, undisturbed(counted), rtol=0, atol=1e-11)


def handler(endpoint: str, least: int, most: int, **options: float) -> TweedRendezvous:
    """As torchrun makes it of its options."""
    params = RendezvousParameters("tweed", endpoint, "a-run", least, most, **options)
    found = get_rendezvous_handler(params)
    assert isinstance(found, TweedRendezvous)
    return found


def placed(one: TweedRendezvous, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[object]]:
    """What its workers are told: whom to join, and how to found."""
    for name in (JOIN, AGENT):
        monkeypatch.setenv(name, "")
    place = one.next_rendezvous()
    assert (place.rank, place.world_size, one.num_nodes_waiting()) == (0, 1, 0)
    return os.environ[JOIN], json.loads(os.environ[AGENT])[1:]


def test_the_first_found_and_who_comes_later_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    first = handler(endpoint, 1, 2, last_call_timeout=0)
    late = handler(endpoint, 1, 2, join_timeout=0.5)
    try:
        assert placed(first, monkeypatch) == ("", [endpoint, "tweed/a-run/0", 0, 1])
        directory = Directory(endpoint, "a-run")
        directory.tell(["host:1"])
        Directory(endpoint, "another run").tell(["host:3"])
        assert placed(late, monkeypatch) == ("host:1", [])
        assert placed(first, monkeypatch) == ("host:1", [])  # its worker has died
        directory.tell([])
    finally:
        first.shutdown()
        late.shutdown()


def test_who_comes_while_the_founder_s_worker_starts_founds_no_second_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    first = handler(endpoint, 1, 2, last_call_timeout=0)
    late = handler(endpoint, 1, 2, last_call_timeout=0, join_timeout=1)
    try:
        assert placed(first, monkeypatch) == ("", [endpoint, "tweed/a-run/0", 0, 1])
        with pytest.raises(RendezvousTimeoutError, match="no members of run 'a-run' are listed"):
            placed(late, monkeypatch)
    finally:
        first.shutdown()
    assert placed(late, monkeypatch) == ("", [endpoint, "tweed/a-run/1", 0, 1])  # that run is over
    late.shutdown()


def test_who_is_dead_is_not_waited_for() -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    mine, other = Directory(endpoint, "a-run"), Directory(endpoint, "a-run")
    mine.beat()
    assert not mine.others_beat(0.0)
    other.beat()
    assert mine.others_beat(1.0) and mine.others_beat(5.9) and not mine.others_beat(6.1)
    other.beat()
    assert mine.others_beat(7.0)
    other.rest()
    assert not mine.others_beat(7.5)


def test_who_spoils_the_directory_is_told_of_by_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    stranger = Directory(endpoint, "a-run")
    stranger._store.set(f"members {stranger._slot}", "nonsense")
    late = handler(endpoint, 1, 1, join_timeout=0.3)
    with pytest.raises(RendezvousTimeoutError, match=f"the store at {endpoint} holds something else"):
        placed(late, monkeypatch)
    late.shutdown()


def test_fewer_than_the_least_wait_and_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    alone = handler(endpoint, 2, 2, join_timeout=0.3)
    with pytest.raises(RendezvousTimeoutError, match="fewer than 2 agents have come"):
        placed(alone, monkeypatch)
    alone.shutdown()
