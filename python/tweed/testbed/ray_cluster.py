"""Raylets in a testbed: a Ray cluster with one node per rank.

    launcher ── pipe ──> cat, process 1 of a node's own namespaces; with it live raylet, workers, drivers

Beside the network of its rank, a node has namespaces of processes and of mounts, and a file system in memory
where Ray keeps sockets, logs and objects. Its first process becomes a `cat` that reads from a pipe, as those
that hold networks do. When the pipe's other end closes, because the launcher closed it or died in whatever
way, `cat` leaves, and the kernel kills all that is left in the namespace. No file stays behind.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tweed.errors import NoTestbed
from tweed.ray.installed import require_ray
from tweed.testbed.host_network import HostNetwork
from tweed.testbed.namespaces import program, require

#: Where the head of a cluster, rank 0, listens.
PORT = 6379
#: Room for objects on each node.
STORE_BYTES = 100 * 2**20
#: Where Ray keeps its sockets and logs, unless somebody moves them; all its processes know it.
_SCRATCH = Path("/tmp/ray")
_LOG = f"{_SCRATCH}/start.log"

#: What the first process of a node does: it becomes `cat` at once. Beside it Ray starts; a line says how.
_FIRST = f"""
mount -t tmpfs tweed {_SCRATCH} && mount -t tmpfs tweed /dev/shm || exit 1
{{ if "$@" >{_LOG} 2>&1; then echo started; else cat {_LOG} >&2; echo failed; fi; }} &
exec cat
"""

_START = (sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start")
#: What a test has no use for stays away.
_LEAN = ("--disable-usage-stats", "--no-monitor", "--include-log-monitor", "false")


class RayCluster:
    """A Ray cluster in a testbed: its head at rank 0, a node at each other rank. Made by `ray_cluster`.

    Attributes:
      address: of the head, as `ray.init` takes it on any node.
    """

    def __init__(self, bed: HostNetwork, cpus: int) -> None:
        self.address = f"{bed.hosts[0].address}:{PORT}"
        self._bed, self._cpus = bed, cpus
        # All that asks anything of this cluster must know it; another cluster's processes do not.
        self._token = secrets.token_hex(32)
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, rank: int) -> None:
        """Starts the node of `rank`; rank 0 goes first.

        Raises: NoTestbed if it does not start; with what Ray has written.
        Cost: 3 s of a processor, 190 MB.
        """
        place = ("--head", "--port", str(PORT), "--include-dashboard", "false")
        words = [*_START, *(place if rank == 0 else ("--address", self.address)), *_LEAN]
        words += ["--node-ip-address", self._bed.hosts[rank].address, "--num-cpus", str(self._cpus)]
        words += ["--object-store-memory", str(STORE_BYTES)]
        own = ("--pid", "--fork", "--kill-child", "--mount", "--mount-proc")
        first = [program("unshare"), *own, "sh", "-c", _FIRST, "sh", *words]
        pipe = subprocess.PIPE
        node = subprocess.Popen(
            self._bed.command(rank, *first),
            env=_free_of_ray() | self._environment(rank),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            process_group=0,
        )
        self._nodes[rank] = node
        assert node.stdout
        if node.stdout.readline() != b"started\n":
            node.kill()
            said = self._nodes.pop(rank).communicate()[1].decode(errors="replace").strip()
            raise NoTestbed(f"the raylet of rank {rank} does not start: {said}")

    def kill(self, rank: int) -> None:
        """Kills the raylet of `rank` and all that it has started, at once, as if its host lost its power."""
        node = self._nodes.pop(rank)
        node.kill()  # `unshare --kill-child`: the first process goes with it
        node.communicate()

    def stop(self) -> None:
        """Ends all nodes. The testbed stays."""
        for rank in list(self._nodes):
            self._nodes.pop(rank).communicate()

    def command(self, rank: int, *words: str, folder: Path | None = None) -> list[str]:
        """`words` as a command that runs on the node of `rank`, such as a driver, and is killed with it.

        Args:
          folder: where it works; `None`: where this process does. It sees the same files, but for Ray's.
        """
        first = _first(self._nodes[rank])
        enter = (program("nsenter"), "--target", str(first), "--mount", "--pid")
        settings = [f"{name}={value}" for name, value in self._environment(rank).items()]
        return self._bed.command(rank, *enter, "env", f"--chdir={folder or Path.cwd()}", *settings, *words)

    def _environment(self, rank: int) -> dict[str, str]:
        """The environment of all processes on a node."""
        return self._bed.home(rank).environment | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self._token,
            "RAY_TMPDIR": str(_SCRATCH.parent),
            "RAY_prestart_worker_first_driver": "0",
        }


def _free_of_ray() -> dict[str, str]:
    """This process's environment, without what it says of another cluster."""
    return {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}


def _first(node: subprocess.Popen[bytes]) -> int:
    """The first process of a node's namespace: the child of the one that has made it."""
    return int(Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text())


@contextmanager
def ray_cluster(bed: HostNetwork, cpus: int = 1) -> Iterator[RayCluster]:
    """Starts a raylet at every rank of a testbed, one after the other, and ends them after the block.

    Args:
      bed: as `opened` gives it.
      cpus: what each node offers to Ray, whatever the machine has.

    Raises:
      UsageError: Ray is not installed, or too old.
      NoTestbed: a node does not start.

    Cost: per node 3 s of a processor, 190 MB, and 1 % of a core while it stands.

    Example, where namespaces can be made:

        with opened(Network(), 3) as bed, ray_cluster(bed) as cluster:
            subprocess.run(cluster.command(0, "python", "driver.py", cluster.address), check=True)
    """
    require_ray()
    require(["unshare", "nsenter"])
    _SCRATCH.mkdir(exist_ok=True)
    cluster = RayCluster(bed, cpus)
    try:
        for rank in range(bed.size):
            cluster.start(rank)
        yield cluster
    finally:
        cluster.stop()
