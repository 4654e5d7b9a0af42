"""Synchronous and asynchronous SGD on data, by objects alone: a server, and workers that it waits for or not.

    worker: a gradient of the model that it was last given ──> object
    server: the sum of the first `count` of them ──> a step ──> the next model, an object, for whose they were

With as many as there are workers that is synchronous SGD. Whose gradient is not among the first stays in the
race for the next sum, computed on a model that is older by then.

Gradients travel as whole numbers of `UNIT`, whose sums do not depend on their order. So what the server did
can be done once more by one process, from its log of whose gradient was in which sum, bit for bit.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tweed.ray.objects import Objects, Ref
from tweed.systems.harness.barriers import FileBarrier
from tweed.testbed import run_ranks
from tweed.train.shard import Shard, cosine

Whole = npt.NDArray[np.int64]
#: Gradients are rounded to multiples of it, and what is beyond `_MOST` counts as that.
UNIT, _MOST = 2.0**-32, 2.0**20
_BATCH, _PATIENCE_S, _TIMEOUT_S = 32, 120.0, 1800.0


@dataclass(frozen=True, slots=True)
class Job:
    """One training.

    Attributes:
      workers: beside the server, each with a part of the samples.
      count: gradients of a step.
      steps: of the server.
      lr: at the begin; it falls along half a cosine.
      momentum: of the server's SGD.
    """

    workers: int
    count: int
    steps: int
    lr: float
    momentum: float = 0.0
    task: str = "fashion-mnist"
    seed: int = 0


class Used(NamedTuple):
    """A gradient that is in a sum."""

    worker: int
    #: Counts the worker's gradients.
    number: int
    #: Of the model that it is of.
    version: int


class Server:
    """The model and its steps, without a network."""

    def __init__(self, job: Job) -> None:
        torch.manual_seed(job.seed)
        self._job, self.shard = job, Shard(job.task, _BATCH, job.workers, job.workers, seed=job.seed)
        self.model = self.shard.model()
        self.params = _flat(list(self.model.parameters()))
        self._velocity, self.version = torch.zeros_like(self.params), 0

    def step(self, total: Whole) -> None:
        """Takes a step with the sum of `count` gradients."""
        mean = torch.from_numpy(total * (UNIT / self._job.count)).float()
        self._velocity = self._job.momentum * self._velocity + mean
        self.params = self.params - cosine(self._job.lr, self.version, self._job.steps) * self._velocity
        self.version += 1

    def accuracy(self) -> float:
        """The share of test samples that are classified right."""
        _load(self.model, self.params)
        count = len(self.shard.arrays.test)
        return float(self.shard.scores(self.model, count)[1]) / count


class Worker:
    """Gradients of one worker's samples."""

    def __init__(self, job: Job, number: int) -> None:
        self._shard = Shard(job.task, _BATCH, number, job.workers, seed=job.seed)
        self._model = self._shard.model()

    def gradient(self, params: Tensor, number: int) -> Whole:
        """The gradient of its batch of this number, at these parameters."""
        _load(self._model, params)
        self._model.zero_grad()
        self._shard.loss(self._model, self._shard.batch(number)).backward()  # type: ignore[no-untyped-call]
        grads = [param.grad for param in self._model.parameters() if param.grad is not None]
        found = _flat(grads).double().nan_to_num(0.0).clamp(-_MOST, _MOST)
        return np.asarray(torch.round(found / UNIT).to(torch.int64).numpy())


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


@torch.no_grad()
def _load(model: nn.Module, params: Tensor) -> None:
    parts = torch.split(params, [param.numel() for param in model.parameters()])
    for param, part in zip(model.parameters(), parts, strict=True):
        param.copy_(part.reshape(param.shape))


def train(job: Job) -> tuple[float, bytes, list[list[Used]]]:
    """A server and its workers, a process each on this host.

    Returns: the accuracy at the end, a digest of the model, and by step what is in its sum.
    """
    with tempfile.TemporaryDirectory() as folder:
        found: Any = run_ranks(_rank, job.workers + 1, job, Path(folder), timeout=_TIMEOUT_S)[0]
    accuracy, digest, log = found
    return accuracy, digest, log


def replayed(job: Job, log: Sequence[Sequence[Used]]) -> bytes:
    """The digest of the model that one process gets from a log. Cost: all gradients, one after the other."""
    torch.set_num_threads(1)  # as in the workers: on several, sums are others
    server, workers = Server(job), [Worker(job, number) for number in range(job.workers)]
    last = {one.version: step for step, sources in enumerate(log) for one in sources}
    models = {0: server.params}
    for step, sources in enumerate(log):
        gradients = [workers[one.worker].gradient(models[one.version], one.number) for one in sources]
        server.step(np.sum(gradients, axis=0))
        models[server.version] = server.params
        models = {version: each for version, each in models.items() if last.get(version, 0) > step}
    return _digest(server.params)


def _digest(params: Tensor) -> bytes:
    return hashlib.blake2b(params.numpy().tobytes(), digest_size=16).digest()


def _rank(rank: int, size: int, job: Job, folder: Path) -> Any:
    torch.set_num_threads(1)
    barrier = FileBarrier(folder / "barrier", rank, size)
    with Objects() as objects:
        (folder / f"{rank}").write_bytes(objects.descriptor)
        for turn in range(size):
            barrier.wait()  # whoever comes later calls those before
            if turn == rank:
                objects.meet([(folder / f"{other}").read_bytes() for other in range(rank)])
        barrier.wait()
        found = None
        if rank == 0:
            found = _serve(objects, job)
        else:
            _work(objects, job, rank - 1)
        barrier.wait()  # nobody needs what is here any more
    return found


def _ref(what: str, *numbers: int) -> Ref:
    """A ref that is the same in all processes."""
    words = " ".join([what, *map(str, numbers)])
    return Ref(int.from_bytes(hashlib.blake2b(words.encode(), digest_size=16).digest()))


def _work(objects: Objects, job: Job, number: int) -> None:
    """Answers each task, which is the version of a model, by a gradient, until one is negative."""
    worker, count = Worker(job, number), 0
    while (version := int(_got(objects, _ref("task", number, count))[0])) >= 0:
        params = torch.from_numpy(_got(objects, _ref("model", version)).copy())
        objects.put(worker.gradient(params, count), _ref("gradient", number, count))
        count += 1


def _got(objects: Objects, ref: Ref) -> Any:
    return objects.get(ref, timeout=_PATIENCE_S).result()


def _serve(objects: Objects, job: Job) -> tuple[float, bytes, list[list[Used]]]:
    server, log = Server(job), list[list[Used]]()
    waiting = {worker: Used(worker, 0, 0) for worker in range(job.workers)}
    objects.put(server.params.numpy(), _ref("model", 0))
    for worker in waiting:
        objects.put(np.array([0]), _ref("task", worker, 0))
    for _ in range(job.steps):
        refs = {_ref("gradient", one.worker, one.number): one for one in waiting.values()}
        done = objects.reduce(list(refs), job.count, timeout=_PATIENCE_S).result()
        sources = sorted(refs[ref] for ref in done.refs)
        log.append(sources)
        server.step(done.array)
        objects.put(server.params.numpy(), _ref("model", server.version))
        before = {one.version for one in waiting.values()} | {server.version - 1}
        for one in sources:
            objects.put(np.array([server.version]), _ref("task", one.worker, one.number + 1))
            waiting[one.worker] = Used(one.worker, one.number + 1, server.version)
        used = {one.version for one in waiting.values()}
        gone = [*done.refs, done.ref, *(_ref("task", one.worker, one.number) for one in sources)]
        gone += [_ref("model", version) for version in before - used]
        for ref in gone:
            objects.delete(ref)
    for one in waiting.values():
        objects.put(np.array([-1]), _ref("task", one.worker, one.number + 1))
    return server.accuracy(), _digest(server.params), log


def run(job: Job, with_replay: bool) -> Mapping[str, Any]:
    """What came of a training, for notes.

    Returns: `accuracy`; `diverged`; `mean_delay` and `most_delay` of a gradient, in steps; and `replayed`,
      whether a replay of its log ends with the same model, None without one.
    """
    accuracy, digest, log = train(job)
    delays = [step - one.version for step, sources in enumerate(log) for one in sources]
    is_same = replayed(job, log) == digest if with_replay else None
    facts = {"accuracy": accuracy, "diverged": accuracy < 0.2, "replayed": is_same}
    return facts | {"mean_delay": float(np.mean(delays)), "most_delay": max(delays)}
