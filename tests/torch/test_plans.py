"""The schedules that a group runs: for links that were measured, told, stored, and taken back."""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tweed.collective import NETWORK, ONE_HOST, Links, Pick, Plan, build, plan, topology
from tweed.errors import UsageError
from tweed.testbed import run_ranks
from tweed.torch import backend as backends
from tweed.torch import plan_json
from tweed.torch.measure_links import Measured, Probe, link_of, slowest
from tweed.torch.options import Options


@contextmanager
def grouped(rank: int, size: int, store: str, options: Any, backend: str = "tweed") -> Iterator[None]:
    """Within, there is a default group with these options."""
    place = {"init_method": f"file://{store}", "rank": rank, "world_size": size}
    dist.init_process_group(backend, pg_options=options, **place)
    yield
    dist.destroy_process_group()


def stored_plan(rank: int, size: int, store: str, text: str) -> str | None:
    """What a group says of its plan when it was given `text`."""
    # Only rank 0 holds the plan: the others must receive it.
    with grouped(rank, size, store, Options(plan=text) if rank == 0 else None):
        return plan_json()


def test_a_stored_plan_is_every_ranks_plan(tmp_path: Path) -> None:
    unusual = plan(2, ONE_HOST, {"all_reduce": "ring", "broadcast": "star"}).to_json()
    assert run_ranks(stored_plan, 2, str(tmp_path / "store"), unusual) == [unusual, unusual]


def test_a_plan_for_other_ranks_is_left_alone(tmp_path: Path) -> None:
    for_five = plan(5, ONE_HOST).to_json()
    told = run_ranks(stored_plan, 2, str(tmp_path / "store"), for_five)
    assert [Plan.from_json(text or "").ranks for text in told] == [2, 2]


def test_the_slowest_link_counts() -> None:
    near = Probe([0.001] * 5, 2**17, [0.002, 0.003])
    far = Probe([0.1, 0.1, 5.0], 2**17, [0.3, 0.2])
    links = slowest([link_of(near), link_of(far)])
    assert links.latency_s == pytest.approx(0.05)
    assert links.bandwidth == pytest.approx(2**17 / 0.1)
    lossy = Probe([0.04, 0.3], 2**14, [4.17])
    assert slowest([link_of(near), link_of(lossy)]).bandwidth == pytest.approx(2**14 / 4)
    assert not links.shared_memory


def test_what_was_measured_holds_for_a_while_and_of_processes_that_were_there() -> None:
    known, quick, slow = Measured(), Links(1e-4, 1e8), Links(1e-2, 1e6)
    one, other, new = (json.dumps({"uid": uid}).encode() for uid in ("one", "other", "new"))
    known.note(one, quick, 0.0)
    known.note(other, slow, 300.0)
    assert known.links([one], 301.0) == quick and known.links([one, other], 301.0) == slow
    assert known.links([one, new], 301.0) is None
    assert known.links([one], 601.0) is None and known.links([other], 601.0) == slow
    known.note(other, quick, 650.0)
    assert known.links([other], 651.0) == quick


def measured(rank: int, size: int, store: str) -> tuple[str | None, float]:
    """The plan of a group over wires, and a sum by it."""
    with grouped(rank, size, store, Options(transport="tcp")):
        one = torch.ones(1)
        dist.all_reduce(one)
        return plan_json(), one.item()


def test_all_ranks_hold_what_rank_0_measured(tmp_path: Path) -> None:
    first, *others = run_ranks(measured, 3, str(tmp_path / "store"))
    assert first[1] == 3
    assert all(other == first for other in others)
    # Loopback is no 1 Gbit/s network, so the assumed figures would have made another plan.
    assert first[0] != plan(3, NETWORK).to_json()


def summed(rank: int, size: int, store: str, path: str) -> list[str]:
    """The builders of a group's plan, after sums and a broadcast have come out right."""
    with grouped(rank, size, store, Options(transport="tcp", plan=path if rank == 0 else None)):
        for numel in (1, 1000, 300_001):
            numbers = torch.arange(numel) * (rank + 1)
            dist.all_reduce(numbers)
            assert torch.equal(numbers, torch.arange(numel) * (size * (size + 1) // 2))
        for root in range(size):
            number = torch.tensor([rank])
            dist.broadcast(number, root)
            assert number.item() == root
        told = Plan.from_json(plan_json() or "")
    return [pick.builder for pick in told.picks if pick.collective == "all_reduce"]


def test_a_group_runs_a_plan_for_its_network_from_a_file(tmp_path: Path) -> None:
    network = topology.mesh(2, 2)
    pick = Pick("all_reduce", None, "multitree", "", "", 1)
    digest = f"{build('all_reduce', 'multitree', network).digest:016x}"
    rest = [row for row in plan(4, NETWORK).picks if row.collective != "all_reduce"]
    made = Plan(4, (replace(pick, digest=digest), *rest), network)
    (tmp_path / "plan.json").write_text(made.to_json())
    told = run_ranks(summed, 4, str(tmp_path / "store"), str(tmp_path / "plan.json"))
    assert told == [["multitree"]] * 4


def warned(rank: int, size: int, store: str, path: str) -> list[str]:
    """What is said of a plan for other ranks."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with grouped(rank, size, store, Options(plan=path)):
            pass
    return [str(one.message) for one in said if "plan" in str(one.message)]


def test_a_plan_for_other_ranks_is_told_of_once(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(plan(3, ONE_HOST).to_json())
    told = run_ranks(warned, 2, str(tmp_path / "store"), str(tmp_path / "plan.json"))
    assert [len(said) for said in told] == [1, 0] and "is for 3 ranks" in told[0][0]


def refusal(rank: int, size: int, store: str, path: str) -> str:
    """What a group says to a plan that it cannot use."""
    options = Options(plan=path if rank == 0 else None)
    with pytest.raises(UsageError) as raised, grouped(rank, size, store, options):
        pass
    return str(raised.value)


def test_every_rank_hears_of_a_plan_that_cannot_be_used(tmp_path: Path) -> None:
    told = run_ranks(refusal, 2, str(tmp_path / "store"), str(tmp_path / "none.json"))
    assert told[0] == told[1] and "none.json cannot be read: No such file" in told[0]


def test_a_plan_that_contradicts_what_is_asked_for_is_refused(tmp_path: Path) -> None:
    text = plan(2, ONE_HOST).to_json()
    assert Options(plan=text).stored_plan() == Plan.from_json(text)
    with pytest.raises(UsageError, match="the plan has 'exchange' for all_reduce, but 'ring' was asked for"):
        Options(plan=text, schedule={"all_reduce": "ring"}).stored_plan()
    (tmp_path / "plan.json").write_text("[]")
    with pytest.raises(UsageError, match=r"plan\.json: this is not a plan"):
        Options(plan=str(tmp_path / "plan.json")).stored_plan()


def kept_for_later_groups(rank: int, size: int, store: str, bindings: list[str]) -> list[object]:
    """What is known of three groups of one name: with a plan, without, and of another backend."""
    told: list[object] = []
    unusual = plan(size, ONE_HOST, {"all_reduce": "ring"}).to_json()
    for number, binding in enumerate(bindings):
        other = binding == "gloo"
        options = None if other else Options(binding=binding, plan=None if number else unusual)  # type: ignore[arg-type]
        with grouped(rank, size, f"{store}-{number}", options, "gloo" if other else "tweed"):
            name = dist.distributed_c10d._get_default_group().group_name
            told.append((name, plan_json() == unusual, backends.kept(None) is None))
            if other:
                dist.barrier()  # who leaves at once closes connections that others have not seen open
                with pytest.raises(UsageError, match="not of the backend 'tweed'"):
                    backends.engine_group()
    gc.collect()
    return [*told, len(backends._kept)]


@pytest.mark.parametrize("binding", ["native", "python"])
def test_what_is_kept_of_a_group_goes_with_it(tmp_path: Path, binding: str) -> None:
    bindings = [binding, binding, "gloo"]
    for told in run_ranks(kept_for_later_groups, 2, str(tmp_path / "store"), bindings):
        first, second, third, left = told
        assert first[0] == second[0] == third[0]
        assert (first[1:], second[1:], third[1:]) == ((True, False), (False, False), (False, True))
        assert left == 0
