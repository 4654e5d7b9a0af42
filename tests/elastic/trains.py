"""Members that train, of which one kills itself. Without pytest, as each rank imports it."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from tests.elastic.interrupts import Interruptible
from tests.elastic.members import kill_me, stop_me
from tests.simulate.test_elastic import BATCH, NUMEL, SAMPLES, gradient
from tweed.data.sampler import GlobalOrder, Sampler
from tweed.elastic import Checkpoints, Control, Elastic, ElasticRun, group, join, start
from tweed.elastic.witness import Replaces, Witness
from tweed.errors import Evicted, ShapeMismatch
from tweed.exchange.engine import link_counters
from tweed.files import write_atomic
from tweed.testbed import say
from tweed.testbed.fault_injector import FaultInjector
from tweed.testbed.faults import Plan
from tweed.testbed.restarts import kill, pid, restarted

STEPS, KILLED_AT, STEPS_TOGETHER = 50, 20, 30


class Trainee:
    """A model and its optimizer, as each member has them."""

    def __init__(self, lr: float = 0.5) -> None:
        self.params = torch.nn.Parameter(torch.zeros(NUMEL, dtype=torch.float64))
        model = torch.nn.ParameterList([self.params])
        self.optimizer = torch.optim.SGD(model, lr=lr, momentum=0.9)
        self.keep = {"model": model, "optimizer": self.optimizer}

    def step(self, run: ElasticRun | Interruptible, before: Callable[[], None] = lambda: None) -> None:
        """One, of all members; `before` is called when there is something to compute."""

        def of_samples(samples: Sequence[int]) -> Tensor:
            before()
            return gradient(self.params.detach(), samples)

        self.params.grad = run.step(of_samples)
        self.optimizer.step()

    @property
    def digest(self) -> str:
        """Of the parameters."""
        return hashlib.sha256(self.params.detach().numpy().tobytes()).hexdigest()


def sampler() -> Sampler:
    """The same at all."""
    return Sampler(GlobalOrder(SAMPLES, seed=1), BATCH)


def trains(rank: int, size: int, port: int, victim: int) -> tuple[str, Tensor, list[int]]:
    """The victim kills itself when it has computed half of its share: the others are within the exchange."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    control = start(store, rank, size, Elastic(1, size))
    run, trainee = ElasticRun(control, sampler(), timeout_s=60), Trainee()
    for step in range(STEPS):
        trainee.step(run, kill_me if (rank, step) == (victim, KILLED_AT) else lambda: None)
    run.finish()
    control.close()
    return trainee.digest, trainee.params.detach(), run.epochs


def clocked(life: int, rank: int, size: int, port: int, folder: Path) -> tuple[list[float], list[int], float]:
    """Members train, in their first lives, and rank 0 does what is planned. With the clock at the end."""
    if life > 0:
        return [], [], time.time()
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    control = start(store, rank, size, Elastic(1, size))
    run, trainee = ElasticRun(control, sampler(), timeout_s=60), Trainee()
    plan = Plan.parse("after 0s clock 1 by 300s; after 0s kill 2")
    injector = FaultInjector(plan, size, lambda member: pid(folder, member), folder=folder)
    for step in range(STEPS):
        if rank == 0 and step >= KILLED_AT and not injector.done:
            injector.turn(step)
        trainee.step(run)
    run.finish()
    control.close()
    return trainee.params.tolist(), run.epochs, time.time()


def with_clocks(rank: int, size: int, port: int, folder: Path) -> tuple[list[float], list[int], float]:
    """See `clocked`."""
    ended: tuple[list[float], list[int], float] = restarted(clocked, folder, rank, size, port, folder)
    return ended


def stops(rank: int, size: int, port: int, victim: int) -> tuple[str, Tensor, list[int]] | str:
    """The victim stops within a step; who makes it go on finds it evicted."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    control = start(store, rank, size, Elastic(1, size))
    run, trainee = ElasticRun(control, sampler(), timeout_s=3600), Trainee()
    try:
        for step in range(STEPS):
            trainee.step(run, stop_me if (rank, step) == (victim, KILLED_AT) else lambda: None)
        run.finish()
    except Evicted as error:
        return str(error)
    finally:
        control.close()
    return trainee.digest, trainee.params.detach(), run.epochs


def cut_off(rank: int, size: int, folder: Path) -> tuple[str, Tensor, list[int], list[str]]:
    """Within a step all wait until the launcher has cut a link, and then exchange. Returns the links, too."""
    control = start(dist.FileStore(str(folder / "store"), size), rank, size, Elastic(1, size))
    run, trainee = ElasticRun(control, sampler(), timeout_s=60), Trainee()

    def wait() -> None:
        say("within a step")
        while not (folder / "cut").exists():
            time.sleep(0.01)

    for step in range(STEPS):
        trainee.step(run, wait if step == KILLED_AT else lambda: None)
    links = [link["link"] for link in link_counters(None)]
    run.finish()
    control.close()
    return trainee.digest, trainee.params.detach(), run.epochs, links


def mended(rank: int, size: int, folder: Path) -> tuple[str, list[int], list[str]]:
    """All train until the third epoch, in which a link that was missing in the second is there again."""
    control = start(dist.FileStore(str(folder / "store"), size), rank, size, Elastic(1, size))
    run, trainee, told = ElasticRun(control, sampler(), timeout_s=60), Trainee(), 0
    while len(run.epochs) < 3:
        trainee.step(run, lambda: time.sleep(0.002))
        if len(run.epochs) > told:
            told = len(run.epochs)
            say(told)
    links = [link["link"] for link in link_counters(None)]
    run.finish()
    control.close()
    return trainee.digest, run.epochs, links


def witnessed(rank: int, size: int, port: int, folder: Path, dies: dict[int, int]) -> tuple[str, Tensor, int]:
    """The last rank is a witness; the others kill themselves at the steps in `dies`, and rank 0 kills it."""
    witness, place = size - 1, folder / "witness"
    if rank == witness:
        restarted(_witness, folder, rank, folder)
        return "", torch.zeros(0), 0
    while not place.exists():
        time.sleep(0.01)
    elastic = Elastic(1, witness, witnesses=(place.read_text(),))
    control = start(dist.TCPStore("127.0.0.1", port, is_master=False), rank, witness, elastic)
    run, trainee = ElasticRun(control, sampler(), timeout_s=60), Trainee()
    for step in range(STEPS):
        if (rank, dies.get(witness)) == (0, step):
            kill(folder, witness)
        trainee.step(run, kill_me if dies.get(rank) == step else lambda: None)
    run.finish()
    control.close()
    write_atomic(folder / "over", b"")
    return trainee.digest, trainee.params.detach(), run.epochs[-1]


def _witness(life: int, rank: int, folder: Path) -> None:
    place = folder / "witness"
    listen = place.read_text().rpartition("@")[2] if life else "127.0.0.1:0"
    witness = Witness(listen, folder / "state")
    write_atomic(place, witness.address)
    while not (folder / "over").exists():
        witness.turn()
    witness.close()


@contextmanager
def witnessing(
    state: Path, replaces: Replaces | None = None, listen: str = "127.0.0.1:0"
) -> Iterator[Witness]:
    """A witness in this process, driven by a thread."""
    witness, over = Witness(listen, state, replaces=replaces), Event()

    def run() -> None:
        while not over.is_set():
            witness.turn()

    thread = Thread(target=run)
    thread.start()
    try:
        yield witness
    finally:
        over.set()
        thread.join()
        witness.close()


def differs(rank: int, size: int, port: int, how: str) -> tuple[str, int]:
    """Of three members one is unlike the others; of two, each. Returns the error, and steps that count."""
    group._AGAIN_S = 0.2  # nobody is lost here
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    control, trainee = start(store, rank, size, Elastic(1, size)), Trainee()
    run, steps = ElasticRun(control, sampler(), trainee.keep, check_every=1, timeout_s=60), 8
    try:
        while run.steps_done < (4 if (how, rank) == ("ends early", 0) else steps):
            if (how, rank, run.steps_done) == ("keeps other bytes", 1, 4):
                trainee.params.data[0] += 1
            trainee.step(run)
        run.finish()
    except ShapeMismatch as error:
        return str(error), run.steps_done
    finally:
        run.close()
        control.close()
    return "", run.steps_done


class Ended(NamedTuple):
    """Of a member that has left, or has trained to the end."""

    digest: str
    params: Tensor
    steps_done: int
    computed: int
    epochs: list[int]


def leaves(rank: int, size: int, port: int, leavers: tuple[int, ...]) -> Ended:
    """Some ask themselves to leave, as a notice of the machine's end would, and the others go on."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    control = start(store, rank, size, Elastic(1, size))
    return _until_out(control, STEPS, KILLED_AT if rank in leavers else None)


def comes_back(rank: int, size: int, port: int, key_file: str) -> list[Ended]:
    """The last rank leaves and joins again with the same key, while the others go on."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    last = rank == size - 1
    elastic = Elastic(1, size, key_file=key_file if last else None)
    control = start(store, rank, size, elastic)
    store.set(f"address {rank}", control.address)
    if not last:
        return [_until_out(control, store)]
    left = _until_out(control, store, KILLED_AT)
    return [left, _until_out(join(store.get("address 0").decode(), elastic), store)]


def stores(rank: int, size: int, port: int, folder: Path, attempt: str, steps: int) -> tuple[str, Tensor]:
    """Goes on from the checkpoint in `folder`, whoever has written it, and writes one every other step."""
    store = dist.PrefixStore(attempt, dist.TCPStore("127.0.0.1", port, is_master=False))
    control, trainee = start(store, rank, size, Elastic(1, size)), Trainee()
    run = ElasticRun(control, sampler(), trainee.keep, checkpoints=Checkpoints(folder, 2))
    while run.steps_done < steps:
        trainee.step(run)
    run.finish()
    control.close()
    return trainee.digest, trainee.params.detach()


def last_step(store: dist.Store, counted: int) -> int:
    """Some steps after all are in, by who sees it first: one may enter a step before the others."""
    return int(store.compare_set("last step", "", str(counted + STEPS_TOGETHER)))


def _until_out(control: Control, until: int | dist.Store, left_at: int | None = None) -> Ended:
    """Trains up to this step, or to one that members agree on there when one has come back; or asks itself
    to leave."""
    trainee, fewer = Trainee(), control.joins
    steps = until if isinstance(until, int) else None
    computed: list[int] = []
    run = ElasticRun(control, sampler(), trainee.keep, timeout_s=60)
    with run.leaving_on(signal.SIGTERM):
        while steps is None or run.steps_done < steps:
            if run.steps_done == left_at:
                os.kill(os.getpid(), signal.SIGTERM)
            trainee.step(run, lambda: computed.append(run.steps_done))
            fewer = fewer or len(run.members) == 3
            if steps is None and not isinstance(until, int) and fewer and len(run.members) == 4:
                steps = last_step(until, run.steps_done)
    run.finish()
    control.close()
    return Ended(trainee.digest, trainee.params.detach(), run.steps_done, len(computed), run.epochs)


def joins(rank: int, size: int, place: int | Path, victim: int | None) -> tuple[str, Tensor, int, int]:
    """The last rank joins the others while they train. All go on for some steps when it is in, and one of
    them may kill itself then. `place`: of the first meeting, a port or a file."""
    store: dist.Store = (
        dist.FileStore(str(place), size)
        if isinstance(place, Path)
        else dist.TCPStore("127.0.0.1", place, is_master=False)
    )
    if rank < size - 1:
        control = start(store, rank, size - 1, Elastic(1, size))
        store.set(f"address {rank}", control.address)
    else:
        founders = [store.get(f"address {other}").decode() for other in range(1, size - 1)]
        control = join(",".join(filter(None, founders)), Elastic(1, size))
    trainee = Trainee()
    run = ElasticRun(control, sampler(), trainee.keep, timeout_s=60, check_every=1)
    began, last = run.steps_done, None
    while last is None or run.steps_done < last:
        dies = rank == victim and last is not None and run.steps_done == last - STEPS_TOGETHER // 2
        trainee.step(run, kill_me if dies else lambda: None)
        if last is None and len(run.members) == size:
            last = last_step(store, run.steps_done)
    run.finish()
    control.close()
    return trainee.digest, trainee.params.detach(), began, run.steps_done
