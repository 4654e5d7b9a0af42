"""Tables and goals of the virtual hub, alone and beside Flower; and small runs of our side."""

from __future__ import annotations

import pytest
import torch

from bench import flower, hub_links, virtual_hub
from bench.goals import goals

HUB = {"part": "virtual hub", "side": "each, first in", "ranks": 10_000, "contributions": 100_000}
ROWS = [
    HUB | {"events": 900_000, "virtual_s": 3000.0, "cpu_s": 30.0},
    *(
        {"part": "flower", "of": 5, "side": side, "round_s": round_s, "off": off}
        for side, round_s, off in (("tweed", 0.5, 0.0), ("Flower", 2.0, 1e-7))
    ),
]


def test_events_per_second_and_goals() -> None:
    line = "| each, first in | 10,000 | 100,000 | 3000 s | 30.0 s | 900,000 | 30,000 |"
    assert line in virtual_hub.table(ROWS) and virtual_hub.table([]) == ""
    assert "each, first in | at most 60 s of CPU | 30.0 s | yes |" in goals(ROWS)
    assert "at most 60 s" not in goals([HUB | {"events": 1, "cpu_s": 1.0, "ranks": 100}])


LINKS = [
    {"part": "hub links", "side": side, "members": 5000, "cpu_s": cpu, "join_cpu_s": 1e-4, "memory": 4096}
    for side, cpu in (("echo", 5e-6), ("hub", 2e-5))
]


def test_a_hubs_links_are_counted_in_echoes() -> None:
    assert "| tweed | 5,000 | 20.0 µs | 4.0 times | 100 µs | 4 KB |" in hub_links.table(LINKS)
    assert hub_links.table([]) == ""
    assert "at most 10 times a bare echo by epoll | 4.0 times | yes |" in goals(LINKS)


@pytest.mark.soak
def test_members_that_stay_are_answered_when_half_vanish() -> None:
    sides = [row["side"] for row in hub_links.rows(8)]
    assert sides == ["echo", "hub"]


def test_flower_is_counted_in_rounds_of_ours() -> None:
    assert list(flower.factors(ROWS)) == [(5, 4.0)]
    assert "| 5 | Flower | 2.00 s | 4.00x | 1e-07 |" in flower.beside(ROWS) and flower.beside([]) == ""
    assert "5 local steps | 5x Flower | 4.00x Flower | **no** |" in goals(ROWS)


def test_a_small_hub_is_measured() -> None:
    found = list(virtual_hub.rows((5,), 20))
    assert [row["side"] for row in found] == list(virtual_hub.HUBS)
    assert all(row["contributions"] >= 20 and row["events"] > 100 for row in found)


def test_our_side_of_a_round_is_federated_averaging() -> None:
    """Beside the average of models that were trained one by one."""
    ends, found = flower.ours(2, 1)
    assert len(ends) == 2
    newest = torch.nn.utils.parameters_to_vector(flower.model().parameters()).detach()
    for number in range(2):
        models = []
        for client in range(flower.CLIENTS):
            local = flower.model()
            torch.nn.utils.vector_to_parameters(newest.clone(), local.parameters())
            for step in (2 * number, 2 * number + 1):
                local.zero_grad()
                inputs, labels = flower.drawn(client, step)
                torch.nn.functional.cross_entropy(local(inputs), labels).backward()
                with torch.no_grad():
                    for param in local.parameters():
                        param -= flower.LR * param.grad
            models.append(torch.nn.utils.parameters_to_vector(local.parameters()).detach())
        newest = torch.stack(models).mean(0)
    torch.testing.assert_close(found, newest)
