"""Nodes of a Ray cluster: nothing is left of them. Something stands in for Ray; tests/ray has Ray itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbed.test_namespaces import living_in
from tests.testbed.test_ranks import gone, words_of_killed
from tweed.errors import NoTestbed, UsageError
from tweed.ray import installed
from tweed.testbed import Network, opened, ray_cluster

#: Leaves a process behind, as `ray start` does.
STANDS_IN = ("sh", "-c", "setsid sleep 3600 >/dev/null 2>&1 & sleep 0")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something that starts in no time."""
    monkeypatch.setattr(ray_cluster, "require_ray", lambda: None)
    monkeypatch.setattr(ray_cluster, "_START", STANDS_IN)


def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "version", lambda: None)
    with pytest.raises(UsageError, match=r"pip install .*\[ray\]'"), ray_cluster.ray_cluster(None):  # type: ignore[arg-type]
        pass


@pytest.mark.usefixtures("namespaces", "stand_in")
def test_nodes_end_with_their_block_and_one_can_be_killed_before() -> None:
    with opened(Network(), 2) as bed:
        spaces = [{host.namespace} for host in bed.hosts]
        with ray_cluster.ray_cluster(bed) as cluster:
            assert all(len(living_in(space)) > 2 for space in spaces)
            cluster.kill(1)
            assert gone([pid for pid in living_in(spaces[1]) if pid != bed._namespaces.holder(1)])
            assert len(living_in(spaces[0])) > 2
        assert [living_in(space) for space in spaces] == [[bed._namespaces.holder(rank)] for rank in range(2)]


@pytest.mark.usefixtures("namespaces", "stand_in")
def test_a_command_runs_on_its_node(tmp_path: Path) -> None:
    program = (
        "import os; print(os.getcwd(), os.environ['TWEED_HOST'], os.listdir('/tmp/ray'), os.getpid() < 100)"
    )
    with opened(Network(), 2) as bed, ray_cluster.ray_cluster(bed) as cluster:
        words = cluster.command(1, sys.executable, "-c", program, folder=tmp_path)
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert said.split() == [str(tmp_path), "10.77.0.2", "['start.log']", "True"]
    assert not Path("/tmp/ray/start.log").exists()


@pytest.mark.usefixtures("namespaces", "stand_in")
def test_a_node_that_does_not_start_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "_START", ("sh", "-c", "echo no such thing; exit 3"))
    with opened(Network(), 1) as bed:
        with (
            pytest.raises(NoTestbed, match="raylet of rank 0 does not start: no such thing"),
            ray_cluster.ray_cluster(bed),
        ):
            pass
        assert living_in({bed.hosts[0].namespace}) == [bed._namespaces.holder(0)]


LAUNCHER = """
import os, signal
from pathlib import Path
from tests.testbed.test_namespaces import living_in
from tweed.testbed import Network, opened
from tweed.testbed import ray_cluster

ray_cluster.require_ray = lambda: None
ray_cluster._START = {start!r}
with opened(Network(), 1) as bed:
    space = {{bed.hosts[0].namespace}}
    def tell():
        while len(living_in(space)) < {processes}:
            pass
        print(*living_in(space), flush=True)
        signal.pause()
    if {at_once}:
        signal.signal(signal.SIGALRM, lambda *_: tell())
        signal.setitimer(signal.ITIMER_REAL, 0.1)
    with ray_cluster.ray_cluster(bed):
        tell()
"""


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("start", [STANDS_IN, ("sh", "-c", "sleep 3600")], ids=["standing", "starting"])
def test_a_killed_launcher_leaves_no_node_behind(
    start: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    # The holder of the network; unshare, cat, and what Ray stands for.
    program = LAUNCHER.format(start=start, processes=4, at_once=start is not STANDS_IN)
    pids = [int(word) for word in words_of_killed(program, tmp_path)]
    assert len(pids) >= 4 and gone(pids)
