"""Cells of a notebook that Ctrl-C breaks off, and that are run again. Without pytest, for ranks."""

from __future__ import annotations

import random
import signal
import sys
from code import InteractiveInterpreter
from threading import Thread
from types import FrameType
from typing import Any

import torch.distributed as dist
from torch import Tensor

import tweed
from tests.elastic.loops import BATCH, TOGETHER, Ended, Trainee, dataset, ended
from tests.elastic.members import among
from tests.hooks.nets import equal, make, params, step
from tests.hub.test_training import loss
from tweed.elastic import Elastic, group, join, start
from tweed.errors import TweedError
from tweed.strategy import Strategy
from tweed.testbed import say

INTERRUPTS, MOST_S, COMMITS = 10, 0.02, 100


class Notebook(InteractiveInterpreter):
    """Its cells share their names. As in a notebook the last error stays, with all that its frames hold.

    Args:
      seed: of the moments; it is printed.
      interrupts: so often Ctrl-C is pressed.

    Attributes:
      came: how often it was.
      error: out of the last cell.
    """

    def __init__(self, seed: int, interrupts: int = INTERRUPTS, **names: Any) -> None:
        super().__init__({"press": self.press, **names})
        print(f"seed {seed}", file=sys.stderr)
        self._rng, self.left, self.came, self._within = random.Random(seed), interrupts, 0, False
        self.error: BaseException | None = None
        signal.signal(signal.SIGALRM, self._interrupt)

    def __getitem__(self, name: str) -> Any:
        return self.locals[name]

    def press(self) -> None:
        """A cell calls it: Ctrl-C comes within the next milliseconds, if it is still to come."""
        if self.left > 0 and signal.getitimer(signal.ITIMER_REAL)[0] == 0:
            signal.setitimer(signal.ITIMER_REAL, self._rng.uniform(0.0001, MOST_S))

    def cell(self, source: str) -> None:
        """Runs it once."""
        self.error, self._within = None, True
        self.runcode(compile(source, "<cell>", "exec"))
        self._within = False

    def until_done(self, source: str) -> None:
        """Runs it again for as long as Ctrl-C breaks it off."""
        self.cell(source)
        while isinstance(self.error, KeyboardInterrupt):
            self.cell(source)

    def showtraceback(self) -> None:
        """Of the interpreter: nothing is shown."""
        self._within = False
        sys.last_type, self.error, sys.last_traceback = sys.exc_info()
        sys.last_value = self.error

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._within:
            self.left, self.came, self._within = self.left - 1, self.came + 1, False
            raise KeyboardInterrupt


MEMBER = """
for x, y in run.batches(dataset(), 10**6, BATCH, seed=3, check_every=1):
    press()
    trainee.learn(x, y)
    if is_over(run):
        break
"""


def members(rank: int, size: int, port: int, seed: int) -> tuple[Ended, int]:
    """The last rank is a notebook; the others train until it has been broken off ten times, and all are in.
    Returns also how often the model of the notebook was no longer that of the others, and it joined again."""
    group._AGAIN_S = 0.02  # nobody is lost here
    store, last = dist.TCPStore("127.0.0.1", port, is_master=False), 10**6
    control, is_notebook, joined = among(store, rank, size, Elastic(1, size)), rank == size - 1, 0
    trainee = Trainee(rank)
    run = tweed.attach(trainee.model, trainee.optimizer, elastic=control)
    trainee.keep(run)

    def is_over(run: Any) -> bool:
        nonlocal last
        if is_notebook and not notebook.left and last == 10**6 and len(run.members) == size:
            store.set("last", str(run.steps_done + TOGETHER))
        if last == 10**6 and store.check(["last"]):
            last = int(store.get("last"))
        return bool(run.steps_done >= last)

    names = {"run": run, "trainee": trainee, "dataset": dataset, "BATCH": BATCH, "is_over": is_over}
    notebook = Notebook(seed, INTERRUPTS if is_notebook else 0, **names)
    notebook.until_done(MEMBER)
    while isinstance(notebook.error, TweedError):  # the optimizer's step was not made, or in part
        say(f"joins again: {notebook.error}")
        notebook["run"].detach()
        joined += 1
        trainee = Trainee(rank)
        control = join(store.get("address 0").decode(), Elastic(1, size))
        run = tweed.attach(trainee.model, trainee.optimizer, elastic=control)
        trainee.keep(run)
        notebook.locals |= {"run": run, "trainee": trainee}
        notebook.until_done(MEMBER)
    if notebook.error is not None:
        raise notebook.error
    with run:
        pass
    return ended(run, trainee, notebook.came), joined


HUB_MEMBER = """
while not run.over:
    press()
    loss(model, 0, run.stats.exchanges % 4).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def of_a_hub(rank: int, size: int, strategy: Strategy, seed: int) -> tuple[int, bool, list[int]]:
    """A hub in a thread, and its member, which is a notebook. Returns how often that was broken off, whether
    both ended with the same model, and the versions of the hub's."""
    (model, optimizer), versions = make(0), list[int]()
    hub = tweed.serve(model, optimizer, strategy)
    served = Thread(target=lambda: hub.serve(commits=COMMITS, after=versions.append))
    served.start()
    own, own_optimizer = make(1)
    run = tweed.attach(own, own_optimizer, strategy, hub=hub.address)
    notebook = Notebook(seed, run=run, model=own, optimizer=own_optimizer, loss=loss)
    notebook.until_done(HUB_MEMBER)
    if notebook.error is not None:
        raise notebook.error
    served.join()
    run.detach()
    hub.detach()
    return notebook.came, equal(params(own), params(model)), versions


RANK = """
for number in range(4):
    if number == 2:
        meet()
    step(model, optimizer, rank, number)
"""


class Raises:
    """A hook on the gradient of a parameter that raises once when it is told to."""

    def __init__(self, param: Tensor) -> None:
        self.next = False
        param.register_hook(self._see)  # type: ignore[no-untyped-call]

    def _see(self, gradient: Tensor) -> None:
        if self.next:
            self.next = False
            raise KeyboardInterrupt


def member_within_a_pass(rank: int, size: int) -> tuple[Tensor, list[int]]:
    """A member whose backward pass is broken off when some of its gradients are there."""
    trainee, control = Trainee(0), start(dist.HashStore(), rank, size, Elastic(1, 1))
    raises, cell = Raises(trainee.model[0].weight), "for x, y in run.batches(*given, seed=3): learn(x, y)"
    with tweed.attach(trainee.model, trainee.optimizer, elastic=control, bucket_bytes=1) as run:
        trainee.keep(run)
        notebook = Notebook(0, 0, run=run, given=(dataset(), 6, BATCH), learn=trainee.learn)
        raises.next = True
        notebook.cell(cell)
        assert isinstance(notebook.error, KeyboardInterrupt)
        notebook.until_done(cell)
        assert notebook.error is None
    return trainee.flat, run.epochs


def of_a_group(rank: int, size: int, port: int, where: str, strategy: str) -> tuple[str, str, list[Tensor]]:
    """Rank 1 is a notebook whose cell is broken off while it waits for the others, or within a backward pass,
    and is run again. Returns what ends the cell at each rank, and the model after a new group and a new
    attach."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("tweed", store=dist.PrefixStore("a", store), rank=rank, world_size=size)
    model, optimizer = make(rank)
    run, raises = tweed.attach(model, optimizer, strategy, bucket_bytes=1), Raises(next(model.parameters()))

    def meet() -> None:
        if rank != 1:
            if where == "a wait":
                store.get("interrupted")
        elif where == "a pass":
            raises.next = not store.check(["interrupted"])
        elif notebook.left:
            signal.setitimer(signal.ITIMER_REAL, 0.1)

    notebook = Notebook(0, 1, model=model, optimizer=optimizer, step=step, meet=meet, rank=rank)
    notebook.cell(RANK)
    if rank == 1:
        assert isinstance(notebook.error, KeyboardInterrupt)
        store.set("interrupted", "")
        notebook.cell(RANK)
    error = notebook.error
    run.detach()
    dist.destroy_process_group()
    dist.init_process_group("tweed", store=dist.PrefixStore("b", store), rank=rank, world_size=size)
    with tweed.attach(model, optimizer, strategy):
        for number in range(4):
            step(model, optimizer, rank, number)
    dist.destroy_process_group()
    return type(error).__name__, str(error), params(model)
