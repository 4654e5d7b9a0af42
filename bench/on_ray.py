"""Under Ray Train, on four raylets: DDP's steps on Gloo and on tweed, and what a killed worker costs.

`python -m bench --only ray` starts the cluster, and this module as a driver in it.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from bench.run import Measurement, Row, timings
from bench.training import attached, stepper
from bench.units import digits, grid, seconds
from tweed.ray.installed import version
from tweed.systems.harness.benchmark import Config, Contender, benchmark
from tweed.testbed import Network, opened
from tweed.testbed.ray_cluster import RayCluster, ray_cluster

RANKS, NETWORK, TASK = 4, "rate=100mbit", "fashion-mnist"
STEP, RESTART = "DDP step under Ray Train", "restart under Ray Train"
SIDES = {"tweed": "DDP on tweed", "gloo": "DDP on Gloo"}
CONFIG, REPEATS = Config(6, 8.0, 12, 60), 4
Tie = Callable[[nn.Module, Optimizer], nn.Module]
HOUSE = Path(__file__).parents[1]


def rows() -> Iterator[Row]:
    """Steps, and restarts in turns. Without Ray there are none."""
    if version() is None:
        return
    with opened(Network.parse(NETWORK), RANKS) as bed, ray_cluster(bed) as cluster:

        def launch(fn: Any, ranks: int, *args: object) -> list[Any]:
            return _driven(cluster, "steps")

        for row in timings(_steps, RANKS, launch=launch):
            yield row | {"network": NETWORK}
        for _ in range(REPEATS):
            for backend in SIDES:
                print(f"  a worker is killed, {backend}", file=sys.stderr, flush=True)
                yield {"part": RESTART, "side": SIDES[backend], "ranks": RANKS, **_driven(cluster, backend)}


def beside(rows: Sequence[Row]) -> str:
    """Both tables."""
    steps = {row["side"]: row for row in rows if row["part"] == STEP}
    if not steps:
        return ""
    base = steps["DDP on Gloo"]["median_s"]
    lines = [
        (side, seconds(row["median_s"]), seconds(row["p99_s"]), f"{digits(base / row['median_s'])}x")
        for side, row in steps.items()
    ]
    tables = [grid(("side", "median step", "p99", "speed, times Gloo's"), lines)]
    lost = [
        (side, *(", ".join(seconds(row[key]) for row in found) for key in ("named_s", "restart_s")))
        for side in SIDES.values()
        if (found := [row for row in rows if row["part"] == RESTART and row["side"] == side])
    ]
    tables.append(grid(("side", "a survivor fails after", "first step of new workers after"), lost))
    return f"## Under Ray Train, {RANKS} raylets, {NETWORK}\n\n" + "\n\n".join(tables)


def _driven(cluster: RayCluster, what: str) -> Any:
    """What `main` gives for `what`, beside the head of the cluster."""
    with TemporaryDirectory() as folder:
        program = "import sys; from bench.on_ray import main; main(*sys.argv[1:])"
        words = (sys.executable, "-c", program, cluster.address, what, folder)
        subprocess.run(cluster.command(0, *words, folder=HOUSE), check=True, stdout=subprocess.DEVNULL)
        return pickle.loads((Path(folder) / "result").read_bytes())


def main(address: str, what: str, folder: str) -> None:
    """The driver: runs one job of Ray Train and leaves in `folder` what came out."""
    import ray

    ray.init(address, log_to_driver=False)
    result = _fit(_measure, "tweed", folder) if what == "steps" else _fit(_die_once, what, folder)
    (Path(folder) / "result").write_bytes(pickle.dumps(result))
    ray.shutdown()


def _fit(fn: Any, backend: str, folder: str) -> Any:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    from tweed.ray import TweedConfig

    TorchTrainer(
        fn,
        train_loop_config={"folder": folder},
        torch_config=TweedConfig() if backend == "tweed" else TorchConfig(backend=backend),
        scaling_config=ScalingConfig(num_workers=RANKS, placement_strategy="SPREAD"),
        run_config=RunConfig("run", folder, failure_config=FailureConfig(max_failures=1)),
    ).fit()
    if fn is _measure:
        return [pickle.loads((Path(folder) / f"rank-{rank}").read_bytes()) for rank in range(RANKS)]
    noted = {path.name: json.loads(path.read_text()) for path in Path(folder).glob("*.json")}
    killed = noted["killed.json"]
    # Ray ends survivors when the first has failed: one that waits for another may never hear of it itself.
    heard = min(when for name, when in noted.items() if name.startswith("heard"))
    return {"named_s": round(heard - killed, 4), "restart_s": round(noted["again.json"] - killed, 3)}


def _measure(config: dict[str, str]) -> None:
    rank = dist.get_rank()
    (Path(config["folder"]) / f"rank-{rank}").write_bytes(pickle.dumps(_steps(rank, RANKS)))
    dist.barrier()


def _steps(rank: int, ranks: int) -> list[Measurement]:
    torch.set_num_threads(1)
    gloo = dist.new_group(backend="gloo")
    ties: dict[str, Tie] = {
        "DDP on tweed": _tied(None),
        "DDP on Gloo": _tied(gloo),
        "attach on tweed": lambda model, optimizer: attached(model, optimizer, None),
    }
    contenders = [Contender(side, stepper(TASK, tie)) for side, tie in ties.items()]
    return [Measurement(STEP, 0, benchmark(contenders, CONFIG, lockstep=False))]


def _tied(group: Any) -> Tie:
    return lambda model, _: DistributedDataParallel(model, process_group=group)


def _die_once(config: dict[str, str]) -> None:
    """In the first life rank 1 is killed at its fifth step, in the second one step is made."""
    folder, rank = Path(config["folder"]), dist.get_rank()
    step = stepper(TASK, _tied(None))
    if (folder / "killed.json").exists():
        step()
        if rank == 0:
            _note(folder, "again")
        return
    for _ in range(5):
        step()
    if rank == 1:
        _note(folder, "killed")
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        step()
        step()
    finally:
        _note(folder, f"heard-{rank}")


def _note(folder: Path, name: str) -> None:
    """The time, by the clock that all processes of this machine share."""
    (folder / f"{name}.json").write_text(json.dumps(time.monotonic()))
