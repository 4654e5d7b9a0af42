"""The backend is there without an import of tweed, and costs others next to nothing. Its options."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from tests.torch.test_operations import world
from tweed.errors import UsageError
from tweed.exchange.engine import GroupRequest
from tweed.testbed import run_ranks
from tweed.torch import Options, _explain_torchcomms, plan_json, register
from tweed.torch.backend import check_links
from tweed.torch.options import unknown_variables
from tweed.transport import Ltp

PROGRAM = """
import json, sys
import torch.distributed as dist
loaded = sorted(name for name in sys.modules if name.split(".")[0] == "tweed")
print(json.dumps([hasattr(dist.Backend, "TWEED"), loaded]))
"""


def fresh(autoload: str) -> tuple[bool, list[str]]:
    """In a new process that imports torch alone: is the backend known, and what of tweed is loaded?"""
    env = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
    text = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True
    )
    known, loaded = json.loads(text.stdout)
    return known, loaded


def test_torch_finds_the_backend_and_loads_nothing_heavy() -> None:
    known, loaded = fresh("1")
    assert known
    assert not {"tweed._core", "tweed.collective", "tweed.torch.backend", "tweed.torch.build"} & set(loaded)


def test_autoload_can_be_switched_off() -> None:
    assert fresh("0") == (False, [])


def test_register_may_be_repeated() -> None:
    register()
    before = dist.Backend._plugins["TWEED"]
    register()
    assert dist.Backend._plugins["TWEED"] is before
    assert dist.Backend.backend_capability["tweed"] == ["cpu", "cuda"]


def test_torchcomms_is_explained(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("TORCH_DISTRIBUTED_USE_TORCHCOMMS", "1")
    _explain_torchcomms(SimpleNamespace(distributed_c10d=SimpleNamespace(_torchcomms_handles_backend=None)))
    assert not caplog.records
    _explain_torchcomms(SimpleNamespace(distributed_c10d=SimpleNamespace()))
    assert "Unset it to use tweed" in caplog.text


def test_shared_memory_cannot_be_had_by_asking() -> None:
    check_links(Options(transport="shm"), ["self", "shm"])
    check_links(Options(transport="auto"), ["self", "tcp"])
    with pytest.raises(UsageError, match=r"ranks \[1, 3\] do not share memory"):
        check_links(Options(transport="shm"), ["self", "tcp", "shm", "tcp"])


def no_compiler(rank: int, size: int) -> tuple[str, str, float]:
    """Which kind of group is made, what it says, and whether it works."""
    said = io.StringIO()
    logging.getLogger("tweed").addHandler(logging.StreamHandler(said))
    store = dist.FileStore(os.environ["TWEED_TEST_STORE"], size)
    dist.init_process_group("tweed", store=store, rank=rank, world_size=size)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return type(dist.group.WORLD).__name__, said.getvalue(), tensor.item()


def test_without_a_compiler_the_python_group_takes_over_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TWEED_TEST_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("TWEED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    (first, said, total), (second, silent, _) = run_ranks(no_compiler, 2)
    assert first == second == "PythonGroup"
    assert "no C++ compiler found (looked for no-such-compiler)" in said
    assert not silent
    assert total == 2.0


def test_default_group_of_one() -> None:
    dist.init_process_group("tweed", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert dist.get_backend() == "tweed"
        assert world()._get_backend(torch.device("cpu")).name() == "tweed"
    finally:
        dist.destroy_process_group()


def split(rank: int, size: int) -> tuple[float, str | None, str | None]:
    """What one of the halves of the group gives, its plan, and the plan of the whole."""
    half = dist.split_group(split_ranks=[[0, 1], [2]])
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total, group=half)
    dist.barrier()  # rank 0 keeps the store
    return total.item(), plan_json(half), plan_json()


def test_a_group_that_is_split_off_has_a_plan_of_its_own() -> None:
    sums, halves, wholes = zip(*run_ranks(split, 3, backend="tweed"), strict=True)
    assert sums == (3.0, 3.0, 3.0)
    assert halves[0] == halves[1] and None not in halves
    assert wholes[0] == wholes[1] == wholes[2] != halves[0]


def test_a_variable_that_nobody_knows_is_named_in_a_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TWEED_OWN_THING", "of a program")
    dist.init_process_group("tweed", store=dist.HashStore(), rank=0, world_size=1)
    dist.destroy_process_group()
    assert "TWEED_OWN_THING is set, and tweed knows no such variable: it knows TWEED_" in caplog.text


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SECRETT", "SECRET"),
        ("HOTS", "HOST"),
        ("SECRET_FYLE", "SECRET_FILE"),
        ("PORT", "PORTS"),
        *(("TEST", None), ("TEST_STORE", None), ("MODE", None)),
    ],
)
def test_a_variable_that_is_nearly_one_is_told_from_a_programs_own(name: str, meant: str | None) -> None:
    found = unknown_variables({f"TWEED_{name}": "x", "TWEED_HOST": "::1", "HOME": "/"})
    assert found == {f"TWEED_{name}": meant and f"TWEED_{meant}"}


def test_defaults() -> None:
    assert Options.resolve(None, {}) == Options(transport="auto", binding="auto")


def test_environment_fills_gaps() -> None:
    env = {"TWEED_STREAMS": "3", "TWEED_TRANSPORT": "tcp", "TWEED_SCHEDULE": "all_reduce=ring, reduce=tree"}
    options = Options.resolve(Options(transport="shm"), env)
    assert options.transport == "shm"
    assert options.streams == 3
    assert options.schedule == {"all_reduce": "ring", "reduce": "tree"}


def test_ltp_by_name_has_the_usual_settings() -> None:
    assert Options.resolve(None, {"TWEED_TRANSPORT": "ltp"}).ltp == Ltp()
    given = Options.resolve(Options(transport=Ltp(fraction=0.9), server=0), {"TWEED_SERVER": "2"})
    assert given.ltp == Ltp(fraction=0.9)
    assert given.server == 0
    assert Options.resolve(None, {}).ltp is None


def test_transport_and_server_decide_how_sums_are_taken() -> None:
    assert Options.resolve(None, {}).overrules() == {}
    assert Options.resolve(Options(transport="ltp"), {}).overrules()["all_reduce"] == "pairwise"
    served = Options.resolve(Options(transport="ltp", server=1, schedule={"broadcast": "ring"}), {})
    assert served.overrules()["all_reduce"] == "star"
    assert served.overrules()["broadcast"] == "ring"


def test_what_a_strategy_asks_for_overrules_the_environment() -> None:
    found = Options.resolve(
        GroupRequest(Ltp(fraction=0.9), 1), {"TWEED_TRANSPORT": "tcp", "TWEED_STREAMS": "2"}
    )
    assert (found.transport, found.server, found.streams) == (Ltp(fraction=0.9), 1, 2)


def test_what_a_group_asks_of_clocks_leaves_the_rest_to_the_environment() -> None:
    found = Options.resolve(GroupRequest(compare_clocks=False), {"TWEED_TRANSPORT": "tcp"})
    assert (found.transport, found.compare_clocks) == ("tcp", False)
    assert Options.resolve(None, {"TWEED_COMPARE_CLOCKS": "0"}).compare_clocks is False
    assert Options.resolve(None, {}).compare_clocks is None


def test_other_backends_options_are_ignored() -> None:
    assert Options.resolve(object(), {}) == Options.resolve(None, {})


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"TWEED_TRANSPORT": "udp"}, "transport must be one of auto, shm, tcp, ltp, not 'udp'"),
        ({"TWEED_STREAMS": "many"}, "TWEED_STREAMS must be a whole number, not 'many'"),
        ({"TWEED_SERVER": "the first"}, "TWEED_SERVER must be a whole number, not 'the first'"),
        ({"TWEED_SERVER": "-1"}, "server must be a rank of the group"),
        ({"TWEED_WIRE_ONLY": "perhaps"}, "TWEED_WIRE_ONLY must be 0 or 1"),
        ({"TWEED_STREAMS": "0"}, "streams must be at least 1"),
        ({"TWEED_SCHEDULE": "ring"}, "TWEED_SCHEDULE must look like"),
        ({"TWEED_DEADLINE": "soon"}, "TWEED_DEADLINE must be a number of seconds, not 'soon'"),
        ({"TWEED_DEADLINE": "0"}, "deadline must be a number of seconds above 0"),
        ({"TWEED_DEADLINE": "nan"}, "deadline must be a number of seconds above 0"),
        ({"TWEED_DIAL_ONLY": "perhaps"}, "TWEED_DIAL_ONLY must be 0 or 1, not 'perhaps'"),
        ({"TWEED_BINDING": "rust"}, "binding must be one of"),
    ],
)
def test_impossible_values(env: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Options.resolve(None, env)


def test_a_secret_is_not_shown() -> None:
    options = Options.resolve(None, {"TWEED_SECRET": "open sesame, open sesame", "TWEED_DIAL_ONLY": "1"})
    assert options.secret == "open sesame, open sesame"
    assert options.dial_only is True
    assert "sesame" not in repr(options)
