"""Runs a job on workers that Ray Train places and, when one has failed, starts anew.

The driver opens the run, shows its figures and waits. Each worker does what one of torchrun's does, in the
run's folder, which all nodes must see. Ray Train keeps its own notes in `runs/NAME/ray`.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tweed.errors import PeerLost, TweedError, UsageError
from tweed.ray.installed import require_ray
from tweed.testbed import Failed, RankFailed
from tweed.train.display import Silent
from tweed.train.folder import RunFolder, latest
from tweed.train.launch import Show
from tweed.train.settings import Settings

_REACH_S = 5.0
_SHOW_S = 0.2  # between two looks for new figures
#: What of tweed's environment belongs to the driver's host or to its own process.
_OWN = (
    "HOST",
    "TESTBED",
    "CONGESTION",
    "SECRET",
    "SECRET_FILE",
    "KEY_FILE",
    "DIAL_ONLY",
    "CACHE",
    "DEADLINE",
    "JOIN",
)


@contextmanager
def connected(address: str) -> Iterator[int]:
    """Makes this process a driver of a Ray cluster, and gives the number of its nodes.

    Args:
      address: "HOST:PORT" of the head, or "auto": of the cluster that a node of this host belongs to.

    Raises: UsageError if Ray is missing or too old, or nobody answers there.
    """
    require_ray()
    if "RANK" in os.environ:
        raise UsageError(
            "--ray places the workers: run `tweed train --ray` once, and not under torchrun or Ray"
        )
    _try_address(address)
    import ray

    try:
        ray.init(address, logging_level=logging.WARNING, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise UsageError(
            f"cannot join the Ray cluster at {address}: {str(error).splitlines()[0]}. This command runs on a "
            "host that has a node of the cluster (`ray start --address=...`), with its token if it wants one"
        ) from error
    try:
        yield sum(node["Alive"] for node in ray.nodes())  # type: ignore[no-untyped-call]
    finally:
        ray.shutdown()


def _try_address(address: str) -> None:
    """Fails soon where Ray would try for a minute."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "//" in address:
        raise UsageError(f"--ray takes HOST:PORT of a cluster's head, or auto, not {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_S).close()
    except OSError as error:
        raise UsageError(
            f"no Ray cluster answers at {address} ({error}): `ray start --head` prints the address of one"
        ) from error


@dataclass(frozen=True, slots=True)
class OnRay:
    """Trains on a Ray cluster that this process is `connected` to.

    Args:
      restarts: how often Ray may start all workers anew, from the last checkpoint, after one has failed.
    """

    restarts: int

    def prepare(self) -> None:
        """Nothing: the workers' processes start with the run."""

    def launch(self, settings: Settings, folder: RunFolder, show: Show) -> None:
        """As `launch.launch`, with workers that Ray places: one per node, while there are nodes.

        Raises:
          RankFailed: a worker failed, too often.
          KeyboardInterrupt: the run was stopped; all workers are gone.
          TweedError: Ray could not start them.
          UsageError: a run with a network of its own; too few CPUs, for which Ray would wait in silence.
        """
        if settings.links is not None:
            raise UsageError("--network starts its own workers: go on with this run without --ray")
        if _complete(settings, folder):
            return
        _check_room(settings.ranks)
        with _shown(folder, show):
            self._fit(settings, folder)
        if not _complete(settings, folder):
            raise KeyboardInterrupt  # Ray Train has taken it, and ends as if all were well

    def _fit(self, settings: Settings, folder: RunFolder) -> None:
        from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
        from ray.train.torch import TorchTrainer

        from tweed.ray import TweedConfig

        path, deadline = folder.path.resolve(), os.environ.get("TWEED_DEADLINE")
        environment = {name: text for name, text in os.environ.items() if _goes_along(name)}
        trainer = TorchTrainer(
            _work,
            train_loop_config={
                "settings": settings.to_json(),
                "folder": str(path),
                "environment": environment,
            },
            torch_config=TweedConfig(
                process_group=False, deadline=None if deadline is None else float(deadline)
            ),
            scaling_config=ScalingConfig(num_workers=settings.ranks, placement_strategy="SPREAD"),
            run_config=RunConfig(
                name="ray", storage_path=str(path), failure_config=FailureConfig(max_failures=self.restarts)
            ),
        )
        try:
            trainer.fit()
        except TrainingFailedError as error:
            raise _failure(error, settings.ranks) from error


def _complete(settings: Settings, folder: RunFolder) -> bool:
    return all(latest(folder.checkpoints(label)) == settings.steps for label in settings.sides)


def _check_room(ranks: int) -> None:
    import ray

    cpus = ray.cluster_resources().get("CPU", 0.0)  # type: ignore[no-untyped-call]
    if cpus < ranks:
        raise UsageError(
            f"{ranks} workers take a CPU each, and the Ray cluster has {cpus:g}: give fewer --workers, or "
            "more nodes (`ray start --address=... --num-cpus N`)"
        )


def _goes_along(name: str) -> bool:
    return name.startswith("TWEED_") and name.removeprefix("TWEED_") not in _OWN


def _failure(error: Exception, ranks: int) -> TweedError:
    """The failure that the others may follow from: that of a worker which has lost nobody."""
    failures: dict[int, Exception] = getattr(error, "worker_failures", {})
    if not failures:
        return TweedError(f"Ray Train has given up the run: {error}")
    rank = min(failures, key=lambda rank: (isinstance(failures[rank], PeerLost), rank))
    text = f"rank {rank} of {ranks} failed:\n{failures[rank]}"
    return RankFailed(Failed(rank, text, failures[rank]))


@contextmanager
def _shown(folder: RunFolder, show: Show) -> Iterator[None]:
    """Meanwhile, shows figures as they are written. Those that workers tell anew are shown anew."""
    known, over = folder.figures(), threading.Event()

    def follow() -> None:
        nonlocal known
        while not over.wait(_SHOW_S):
            known = _show_new(known, folder.figures(), show)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _show_new(known, folder.figures(), show)


def _show_new(known: list[dict[str, Any]], rows: list[dict[str, Any]], show: Show) -> list[dict[str, Any]]:
    """Shows what `rows` has beyond its common beginning with `known`; returns `rows`."""
    same = next(
        (index for index, (one, other) in enumerate(zip(known, rows, strict=False)) if one != other),
        min(len(known), len(rows)),
    )
    for row in rows[same:]:
        show(row)
    return rows


def _work(job: dict[str, Any]) -> None:
    """What a worker does: it takes part as one of torchrun's."""
    from tweed.train.torchrun import take_part

    os.environ.update(job["environment"])
    folder = RunFolder(Path(job["folder"]))
    if not folder.metrics.exists():
        raise UsageError(
            f"{socket.gethostname()} does not see {folder.path}, the folder of the run: start `tweed train` "
            "in a folder that all nodes of the Ray cluster share"
        )
    settings = Settings.from_json(job["settings"])
    take_part(lambda: (settings, folder), lambda _: Silent())
