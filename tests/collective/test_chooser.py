"""The chooser: always an answer, the best by its own estimate, with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.collective import COLLECTIVES, NETWORK, ONE_HOST, Links, Reason, build, builders, choose, find
from tweed.collective.chooser import priced_patterns, seconds
from tweed.errors import UsageError

a_collective = st.sampled_from(COLLECTIVES)
a_size = st.integers(0, 1 << 40)
some_links = st.builds(
    Links,
    latency_s=st.floats(0, 1),
    bandwidth=st.floats(1e3, 1e11),
    message_s=st.floats(0, 1e-3),
    fan_in=st.integers(1, 64),
    shared_memory=st.booleans(),
)


@given(collective=a_collective, numbytes=a_size, ranks=st.integers(1, 40), links=some_links)
def test_there_is_always_a_choice_that_builds(
    collective: str, numbytes: int, ranks: int, links: Links
) -> None:
    choice = choose(collective, numbytes, ranks, links)
    schedule = build(collective, choice.builder, ranks)
    assert schedule.collective == collective and schedule.ranks == ranks
    assert choice.why and choice.builder in str(choice)


@given(collective=a_collective, numbytes=a_size, ranks=st.integers(2, 300), links=some_links)
def test_on_a_network_nothing_that_fits_is_quicker(
    collective: str, numbytes: int, ranks: int, links: Links
) -> None:
    choice = choose(collective, numbytes, ranks, links)
    if choice.reason not in (Reason.QUICKEST, Reason.ONE_SENDER):
        return
    times = {}
    for row, shape in priced_patterns(collective, ranks):
        if shape.fan_in <= links.fan_in:
            times[row.name] = seconds(shape, row.chunks(ranks), numbytes, links)
    assert choice.builder == "ring" or choice.reason is Reason.QUICKEST
    more = 0.3 if choice.reason is Reason.ONE_SENDER else 1e-9
    assert times[choice.builder] <= min(times.values()) * (1 + more)


@given(collective=a_collective, ranks=st.integers(2, 64), sizes=st.tuples(a_size, a_size), links=some_links)
def test_more_bytes_never_take_less_time(
    collective: str, ranks: int, sizes: tuple[int, int], links: Links
) -> None:
    small, large = sorted(sizes)
    for row in (row.patterns[collective] for row in builders(collective) if collective in row.patterns):
        assert row.shape is not None
        shape, chunks = row.shape(ranks), row.chunks(ranks)
        assert seconds(shape, chunks, small, links) <= seconds(shape, chunks, large, links)


@given(numbytes=a_size, ranks=st.integers(2, 64))
def test_in_shared_memory_small_buffers_are_exchanged_and_large_ones_shared_out(
    numbytes: int, ranks: int
) -> None:
    choice = choose("all_reduce", numbytes, ranks, ONE_HOST)
    small = numbytes <= 32 * 1024
    assert (choice.builder, choice.reason) == (
        ("exchange", Reason.SHARED_SMALL) if small else ("pairwise", Reason.SHARED_LARGE)
    )


@pytest.mark.parametrize("collective", ["broadcast", "gather", "scatter"])
def test_in_shared_memory_data_is_read_where_it_is(collective: str) -> None:
    assert choose(collective, 1 << 30, 4, ONE_HOST).builder == "star"


def test_a_rank_alone_sends_nothing() -> None:
    choice = choose("all_reduce", 1 << 20, 1, NETWORK)
    assert choice.reason is Reason.ALONE and len(build("all_reduce", choice.builder, 1)) == 0


@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather"])
def test_streams_to_one_rank_are_avoided_where_a_longer_way_costs_little(collective: str) -> None:
    slow = Links(latency_s=3e-4, bandwidth=1.25e7)
    builders = [choose(collective, size << 10, 4, slow).builder for size in (1, 16, 128, 850, 8192)]
    assert builders[0] != "ring" and builders[2:] == ["ring"] * 3


def test_a_long_way_is_taken_seldom() -> None:
    far = Links(latency_s=0.1, bandwidth=1e7)
    assert choose("all_reduce", 1 << 24, 8, far).builder == "pairwise"


def test_many_ranks_do_not_all_send_into_one_port() -> None:
    choice = choose("all_reduce", 1 << 30, 256, NETWORK)
    shape = find("all_reduce", choice.builder).patterns["all_reduce"].shape
    assert shape is not None and shape(256).fan_in <= NETWORK.fan_in


def test_where_nothing_fits_the_reason_says_so() -> None:
    narrow = Links(latency_s=1e-4, bandwidth=1e9, fan_in=0)
    assert choose("all_reduce", 1 << 20, 4, narrow).reason is Reason.ONLY


@given(ranks=st.integers(1, 40), numbytes=a_size, links=some_links)
def test_parts_of_any_size_go_straight_to_their_ends(ranks: int, numbytes: int, links: Links) -> None:
    assert build("all_to_all", choose("all_to_all", numbytes, ranks, links).builder, ranks).direct


def test_a_choice_can_be_overruled() -> None:
    choice = choose("all_reduce", 10, 4, ONE_HOST, asked="ring")
    assert (choice.builder, choice.reason) == ("ring", Reason.ASKED)
    with pytest.raises(UsageError, match="no builder 'rnig' for all_reduce; there are: ring"):
        choose("all_reduce", 10, 4, ONE_HOST, asked="rnig")


@pytest.mark.parametrize("links", [ONE_HOST, NETWORK])
def test_an_unknown_collective_is_refused(links: Links) -> None:
    with pytest.raises(UsageError, match="all_sort"):
        choose("all_sort", 10, 4, links)
