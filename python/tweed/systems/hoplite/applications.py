"""Applications of objects on raylets, beside Ray's own: a server, and workers that answer what it gives them.

    python -m tweed.systems.hoplite applications AlexNet serving --nodes 4   # prints a line per side

One loop has them all. The server gives an array, workers answer after some time, and the first answers are
summed; what the server gives next follows from the sum. In asynchronous SGD and actor-critic the array is a
model and answers are gradients; in policy sync answers are small; in serving the array is a query, and all
models of an ensemble answer (`ensemble`). The server compares each sum with what its sources hold:
that of the ensemble with the sum of the same models in one process.

With tweed the answers form one sum on the way. Where they are gradients, the server's step runs block by
block between the sum and the next model, and workers whose gradients have places in the sum ask for that at
once. "direct" has what the server gives behind a ref of Ray's own (Ray Direct Transport over tweed).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tweed.errors import UsageError
from tweed.systems.hoplite.collectives import in_cluster, payload_rate
from tweed.systems.hoplite.ensemble import CLASSES, LEVELS, PIXELS, Array, classes, query, scores

#: Applications of a side that not all have: the server's step by blocks, and models behind refs of Ray's own.
ONLY = {"blocks": ("AlexNet", "VGG-16", "ResNet-50"), "direct": ("actor-critic", "policy sync")}
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Application:
    """What workers do, in units of S/B: the time in which the server's array crosses a link.

    Attributes:
      name: what it is called.
      compute: how long an answer takes.
      answers: of so many workers, how many answers make a round.
      answer: a "gradient", as large as what is given, or a "policy" or "scores", see `small`.
    """

    name: str
    compute: float
    answers: Callable[[int], int]
    answer: str = "gradient"

    @property
    def is_gradient(self) -> bool:
        """The server steps by the sum of what workers answer."""
        return self.answer == "gradient"


def _half(workers: int) -> int:
    """As many of `workers` and the server as asynchronous SGD waits for: half."""
    return max(1, workers // 2)


#: Parameters in MiB, and images per second of one P100 (TensorFlow's benchmarks of May 2017, synthetic data).
MODELS = {"AlexNet": (233, 2987), "VGG-16": (528, 154), "ResNet-50": (97, 219)}
#: Bits per second of the paper's links, and images of a worker's step.
_PAPER_RATE, _BATCH = 9.69e9, 128


def compute_of(model: str) -> float:
    """A worker's step in units of the time in which the model crosses a link of the paper's."""
    mib, images_s = MODELS[model]
    return (_BATCH / images_s) / (mib * 2**20 * 8 / _PAPER_RATE)


APPLICATIONS = {
    app.name: app
    for app in (
        *(Application(name, compute_of(name), _half) for name in MODELS),
        Application("actor-critic", 2.0, lambda workers: (workers + 1) // 2),
        Application("policy sync", 0.1, lambda workers: (workers + 1) // 2, "policy"),
        Application("serving", 3.1, lambda workers: workers, "scores"),
    )
}


def bound(app: Application, workers: int) -> float:
    """No round takes less, in units of S/B: the server takes in an answer and gives an array in each, and a
    worker needs an array, and time, for each answer of its own."""
    return max(1.0 if app.is_gradient else 0.0, (1 + app.compute) * app.answers(workers) / workers)


#: Through which of them a death is measured: one whose first answers do, one that needs all.
DEATHS = ("AlexNet", "serving")


def measure(
    names: Sequence[str], nodes: int, s_b: float, rounds: int, *, deaths: bool = False
) -> Iterator[Mapping[str, Any]]:
    """Runs applications on a cluster of so many nodes: the server on the first, a worker on each other.

    Args:
      s_b: seconds that the server's array takes over one link.
      rounds: an even number: where half of the workers answer, a short round follows a long one.
      deaths: after `rounds`, one worker is killed in the middle of its answer; Ray starts it, and asks it,
        anew. The server's step then waits for the whole sum.

    Returns: a line per application and side, with `seconds` per round; with `deaths` also of as many rounds
      from the death on, as `after_s`.

    Raises: UsageError for a name that is none; else as `collectives.measure`. Cost: as that.
    """
    if unknown := [name for name in names if name not in APPLICATIONS]:
        raise UsageError(f"there is no application {unknown[0]!r}; there are {', '.join(APPLICATIONS)}")
    flags = ["--drive", "--deaths"] if deaths else ["--drive"]
    words = [*names, *flags, *map(str, ("--s-b", s_b, "--rounds", rounds))]
    yield from in_cluster(nodes, "applications", words)


def is_ref(given: Any) -> bool:
    """It is one of tweed's; else an array, or a tensor, which Ray has brought."""
    import tweed.ray

    return isinstance(given, tweed.ray.Ref)


def small(numel: int) -> int:
    """Elements of an answer that is no gradient, to an array of `numel`: some 7 % of these."""
    return numel // PIXELS * CLASSES


def answer_of(number: int, kind: str, array: Array) -> Array:
    """What a worker answers: a gradient has its number everywhere, a policy is that times the array."""
    if kind == "scores":
        return scores(number, array)
    factor = np.float32(number)
    return np.full(array.size, factor) if kind == "gradient" else factor * array[: small(array.size)]


class Worker:
    """An actor that answers the server's requests."""

    def __init__(self, number: int) -> None:
        self._number = number

    def die(self) -> None:
        """As `kill -9` from outside, which another host's process could not send it."""
        os.kill(os.getpid(), signal.SIGKILL)

    def answer(self, given: Any, ref: Any, app: tuple[float, str]) -> Array | None:
        """With a ref of tweed's the answer is put under it."""
        import tweed.ray

        pause_s, kind = app
        array = tweed.ray.get(given, timeout=PATIENCE_S).result() if is_ref(given) else np.asarray(given)
        time.sleep(pause_s)
        answer = answer_of(self._number, kind, array)
        if ref is None:
            return answer
        tweed.ray.put(answer, ref)
        return None


class _Server:
    """What both sides have in common. `waiting`: whose answer a ref will be."""

    def __init__(
        self, actors: Sequence[Any], app: Application, numel: int, s_b: float, *, by_blocks: bool = True
    ) -> None:
        self.actors, self.app = actors, app
        # Where a source may die, a sum may begin anew: what follows from it waits for its end.
        self.by_blocks = by_blocks and app.is_gradient
        self.count = app.answers(len(actors))
        self.array: Array = query(numel)
        self.how = (app.compute * s_b, app.answer)
        self.waiting: dict[Any, int] = {}
        self.had: dict[int, Array] = {}  # what each worker was given last, as far as its answer is of it
        self.served = classes(np.zeros(small(numel), np.float32))  # of the images of the last query

    def follow(self, total: Array, workers: Sequence[int]) -> None:
        """Checks a sum of these workers' answers; small ones lead to a new array."""
        parts = [answer_of(worker + 1, self.app.answer, self.had[worker]) for worker in workers]
        if not (total == np.sum(parts, axis=0)).all():
            raise ValueError(f"{self.app.name}: the sum of {workers} is wrong")
        if self.app.answer == "scores":
            self.served = classes(total)
        if not self.app.is_gradient:
            self.array = (self.array + 1) % LEVELS

    def note_given(self, worker: int) -> None:
        """The array goes to a worker. A gradient is the same everywhere: one element says what it is."""
        self.had[worker] = self.array[: 1 if self.app.is_gradient else None]


class RayServer(_Server):
    """The loop with Ray's objects: gets the first answers, and adds them up."""

    def _ask(self, workers: Sequence[int]) -> None:
        import ray

        given = ray.put(self.array)
        for worker in workers:
            self.note_given(worker)
            self.waiting[self.actors[worker].answer.remote(given, None, self.how)] = worker

    def begin(self) -> None:
        """All workers are asked."""
        self._ask(range(len(self.actors)))

    def round(self) -> None:
        """The first answers, and what follows from them."""
        import ray

        ready, _ = ray.wait(list(self.waiting), num_returns=self.count)
        total: Array = np.sum(ray.get(ready), axis=0)
        workers = [self.waiting.pop(ref) for ref in ready]
        self.follow(total, workers)
        if self.app.is_gradient:
            self.array = self.array - total
        self._ask(workers)

    def end(self) -> None:
        """Nothing is left of it."""
        import ray

        ray.get(list(self.waiting))
        self.forget()

    def forget(self) -> None:
        """Nobody waits for an answer any more."""
        self.waiting.clear()


class TweedServer(_Server):
    """The loop with tweed's objects."""

    def __init__(
        self, actors: Sequence[Any], app: Application, numel: int, s_b: float, *, by_blocks: bool = True
    ) -> None:
        super().__init__(actors, app, numel, s_b, by_blocks=by_blocks)
        self.given: dict[Any, Any] = {}  # what each answer follows from

    def _ask(self, workers: Sequence[int], given: Any) -> None:
        import tweed.ray

        for worker in workers:
            ref = tweed.ray.Ref.new()
            self.note_given(worker)
            self.waiting[ref], self.given[ref] = worker, given
            self.actors[worker].answer.remote(given, ref, self.how)

    def begin(self) -> None:
        """All workers are asked."""
        self._ask(range(len(self.actors)), self._give())

    def _give(self) -> Any:
        """The array, for workers."""
        import tweed.ray

        return tweed.ray.put(self.array)

    def _take_back(self, given: Any) -> None:
        """No answer follows from it any more."""
        import tweed.ray

        tweed.ray.delete(given)

    def round(self) -> None:
        """The sum of the first answers, and what follows from it."""
        import tweed.ray

        sums = tweed.ray.reduce(list(self.waiting), self.count, timeout=PATIENCE_S)
        asked = self._step(sums) if self.by_blocks else []
        done = sums.result()
        if asked and done.refs != frozenset(asked):
            raise ValueError(f"{self.app.name}: others are in the sum than had places, as one has died")
        workers = [self.waiting.pop(ref) for ref in done.refs]
        self.follow(done.array, workers)
        if self.app.is_gradient and not asked:
            self.array = self.array - done.array
        if not asked:
            self._ask(workers, self._give())
        self._forget([*done.refs], done.ref)

    def _step(self, sums: Any) -> list[Any]:
        """The next model, block by block. Returns the refs in the sum; their senders are asked already."""
        import tweed.ray

        writer = tweed.ray.create(self.array.shape)
        placed = sums.placed()
        self._ask([self.waiting[ref] for ref in placed], writer.ref)
        for begin, some in tweed.ray.blocks(sums.ref, timeout=PATIENCE_S):
            end = begin + len(some)
            np.subtract(self.array[begin:end], some, out=writer.array[begin:end])
            writer.advance(end)
        self.array = writer.array
        return list(placed)

    def _forget(self, refs: Sequence[Any], total: Any) -> None:
        """Deletes what has been summed, and arrays from which no answer follows any more."""
        import tweed.ray

        used = {self.given.pop(ref) for ref in refs}
        for ref in (*refs, total):
            tweed.ray.delete(ref)
        for given in used - set(self.given.values()):
            self._take_back(given)

    def end(self) -> None:
        """Nothing is left of it."""
        import tweed.ray

        for ref in self.waiting:
            tweed.ray.get(ref, timeout=PATIENCE_S).result()
        self.forget()

    def forget(self) -> None:
        """Nobody waits for an answer any more."""
        import tweed.ray

        for ref in self.waiting:
            tweed.ray.delete(ref)
        for given in set(self.given.values()):
            self._take_back(given)
        self.waiting.clear()


class DirectServer(TweedServer):
    """The loop with tweed's sums, and arrays behind refs of Ray's own."""

    def _give(self) -> Any:
        import ray
        import torch

        return ray.put(torch.from_numpy(self.array), _tensor_transport="tweed")

    def _take_back(self, given: Any) -> None:
        """Ray does, when nobody holds it."""


SERVERS: dict[str, type[TweedServer] | type[RayServer]] = {
    "tweed": TweedServer,
    "ray": RayServer,
    "blocks": TweedServer,
    "direct": DirectServer,
}


def drive(address: str, names: Sequence[str], s_b: float, rounds: int, *, deaths: bool = False) -> None:
    """The driver, on the first node: it is the server, and prints a line per application and side."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    import tweed.ray

    ray.init(address, log_to_driver=False)
    tweed.ray.register_tensor_transport()
    # Where actors die, their calls are made anew: with tensors behind Ray's refs they are not.
    options: Any = {"enable_tensor_transport": not deaths}
    remote: Any = ray.remote(**options)(Worker)
    here = ray.get_runtime_context().get_node_id()
    nodes: Any = ray.nodes()  # type: ignore[no-untyped-call]
    others = [node["NodeID"] for node in nodes if node["Alive"] and node["NodeID"] != here]
    places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in others]

    def started(**options: Any) -> list[Any]:
        return [
            remote.options(num_cpus=1, scheduling_strategy=place, **options).remote(number + 1)
            for number, place in enumerate(places)
        ]

    actors = [] if deaths else started()
    numel = int(s_b * payload_rate(len(nodes)) / 4)
    for app in (APPLICATIONS[name] for name in names):
        for side, server in SERVERS.items():
            if app.name not in ONLY.get(side, APPLICATIONS) or (deaths and side in ONLY):
                continue
            line: dict[str, Any] = {"application": app.name, "side": side, "bound": bound(app, len(places))}
            if deaths:
                actors = started(max_restarts=-1, max_task_retries=-1, max_concurrency=2)
                seconds, after = through_death(server(actors, app, numel, s_b, by_blocks=False), rounds)
                line |= {"seconds": seconds, "after_s": after}
                for actor in actors:
                    ray.kill(actor)
            else:
                by_blocks = side == "blocks"
                line["seconds"] = timed(server(actors, app, numel, s_b, by_blocks=by_blocks), rounds)
            print(json.dumps(line), flush=True)
    ray.shutdown()


def _rounds(server: TweedServer | RayServer, rounds: int) -> list[float]:
    seconds = []
    for _ in range(rounds):
        began = time.monotonic()
        server.round()
        seconds.append(time.monotonic() - began)
    return seconds


def timed(server: TweedServer | RayServer, rounds: int) -> list[float]:
    """Seconds of each round, but for the first ones, in which links open and workers fall into step."""
    server.begin()
    seconds = _rounds(server, rounds + 3)
    server.end()
    return seconds[3:]


def through_death(server: TweedServer | RayServer, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of rounds before a worker dies, and from then on: it has been asked last, and is answering."""
    server.begin()
    before = _rounds(server, rounds + 3)[3:]
    last = [*server.waiting.values()][-1]
    server.actors[last].die.options(max_task_retries=0).remote()
    after = _rounds(server, rounds)
    server.forget()
    return before, after


def main(words: Sequence[str]) -> None:
    """Runs applications from the command line, and prints a line for each measurement."""
    parser = argparse.ArgumentParser(
        "python -m tweed.systems.hoplite applications",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(APPLICATIONS)}; all, if none is named")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--s-b", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--deaths", action="store_true", help="a worker is killed after the rounds")
    parser.add_argument("--drive", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.drive:
        drive(given.names[0], given.names[1:], given.s_b, given.rounds, deaths=given.deaths)
        return
    names = given.names or (DEATHS if given.deaths else list(APPLICATIONS))
    for line in measure(names, given.nodes, given.s_b, given.rounds, deaths=given.deaths):
        print(json.dumps(line), flush=True)
