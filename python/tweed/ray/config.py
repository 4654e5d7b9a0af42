"""What Ray Train's workers are told before they form a group."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.train.torch import TorchConfig

from tweed.errors import UsageError

_TorchBackend: Any = TorchConfig().backend_cls


class TweedBackend(_TorchBackend):  # type: ignore[misc]  # Ray names it nowhere else
    """Sets up workers, each time that Ray Train has started a group of them. Runs in its controller."""

    def on_start(self, worker_group: Any, backend_config: TweedConfig) -> None:
        """Gives every worker its settings; then torch's default group is made, if asked for."""
        worker_group.execute(_set_environment, backend_config.environment())
        if backend_config.process_group:
            super().on_start(worker_group, backend_config)
            return
        host, port = worker_group.execute_single(0, _free_address)
        worker_group.execute(_set_ranks, host, port)


@dataclass
class TweedConfig(TorchConfig):
    """Makes the default process group of Ray Train's workers one of tweed: `TorchTrainer(torch_config=...)`.

    Workers on several hosts reach each other at the addresses by which Ray knows their nodes, unless a node's
    own environment has `TWEED_HOST`. Links between hosts are sealed by a secret that is made here, once for
    the run, and handed to the workers through Ray; it does not appear in what Ray shows of a run. All that is
    not set here is taken from the workers' environment, see `tweed.torch.Options`.

    Args:
      deadline: how late a step may be, in seconds (docs/deadlines.md); `None`: as the environment has it.
      secret: what admits to the run, 16 characters or more; made by chance if not given.
      process_group: make the default group before the training function runs. False: only tell workers where
        they meet and who they are, as torchrun does; the function makes groups itself.
      backend, init_method, timeout_s: as in `TorchConfig`.

    Raises:
      UsageError: a deadline that is no time.

    A worker that dies is named by the others' `PeerLost`, within a second; Ray Train ends the run or starts
    all workers anew, as its `FailureConfig` has it.

    Example, where a Ray cluster runs:

        TorchTrainer(train, torch_config=TweedConfig(deadline=30), scaling_config=...).fit()
    """

    backend: str | None = "tweed"
    deadline: float | None = None
    secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    process_group: bool = True

    def __post_init__(self) -> None:
        if self.deadline is not None and not 0 < self.deadline < float("inf"):
            raise UsageError(f"deadline must be a number of seconds above 0, not {self.deadline}")

    @property
    def backend_cls(self) -> type[TweedBackend]:
        """What sets the workers up, for Ray Train."""
        return TweedBackend

    def environment(self) -> dict[str, str]:
        """What every worker's environment must say."""
        deadline = {} if self.deadline is None else {"TWEED_DEADLINE": str(self.deadline)}
        return {"TWEED_SECRET": self.secret} | deadline

    def to_dict(self) -> dict[str, Any]:
        """What Ray may show of it: not the secret."""
        shown: dict[str, Any] = super().to_dict()
        return shown | {"deadline": self.deadline}


def join_network() -> None:
    """Makes this process reachable for other nodes of the Ray cluster, at the address of its own."""
    here: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    os.environ.setdefault("TWEED_HOST", here)


def _set_environment(settings: dict[str, str]) -> None:
    os.environ.update(settings)
    join_network()


def _free_address() -> tuple[str, int]:
    """Where the worker of rank 0 can open the store in which all meet."""
    host = os.environ["TWEED_HOST"]
    with socket.create_server((host, 0)) as listener:
        return host, listener.getsockname()[1]


def _set_ranks(host: str, port: int) -> None:
    """What torchrun would tell this worker."""
    context = ray.train.get_context()
    values: dict[str, object] = {
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "RANK": context.get_world_rank(),
        "WORLD_SIZE": context.get_world_size(),
        "LOCAL_RANK": context.get_local_rank(),
        "LOCAL_WORLD_SIZE": context.get_local_world_size(),
    }
    os.environ.update({name: str(value) for name, value in values.items()})
