"""Runs a schedule on plain Python values, step by step as defined. It shares nothing with the checker."""

from __future__ import annotations

from itertools import groupby

from tweed.collective import Schedule

Values = dict[tuple[int, int], list[int]]
"""By rank and chunk: the ranks whose contributions were summed, in order."""


def begin(schedule: Schedule) -> Values:
    holders = [(rank, chunk) for rank in range(schedule.ranks) for chunk in range(schedule.chunks)]
    return {(rank, chunk): [rank] for rank, chunk in holders if _starts_at(schedule, rank, chunk)}


def follow(schedule: Schedule) -> Values:
    values = begin(schedule)
    for _, step in groupby(schedule, key=lambda send: send.step):
        sends = list(step)
        carried = [list(values[send.src, send.chunk]) for send in sends]
        for send, value in zip(sends, carried, strict=True):
            place = (send.dst, send.chunk)
            values[place] = values[place] + value if send.reduce else value
    return values


def result(schedule: Schedule) -> set[tuple[int, int]]:
    """Rank and chunk of every value that the collective promises."""
    places = [(rank, chunk) for rank in range(schedule.ranks) for chunk in range(schedule.chunks)]
    return {(rank, chunk) for rank, chunk in places if _ends_at(schedule, rank, chunk)}


def contributors(schedule: Schedule, chunk: int) -> list[int]:
    return [rank for rank in range(schedule.ranks) if _starts_at(schedule, rank, chunk)]


def _starts_at(schedule: Schedule, rank: int, chunk: int) -> bool:
    if schedule.collective in ("broadcast", "scatter"):
        return rank == schedule.root
    if schedule.collective in ("all_gather", "gather"):
        return rank == _owner(schedule, chunk)
    if schedule.collective == "all_to_all":
        return rank == _pair(schedule, chunk)[0]
    return True


def _ends_at(schedule: Schedule, rank: int, chunk: int) -> bool:
    if schedule.collective in ("reduce", "gather"):
        return rank == schedule.root
    if schedule.collective in ("reduce_scatter", "scatter"):
        return rank == _owner(schedule, chunk)
    if schedule.collective == "all_to_all":
        return rank == _pair(schedule, chunk)[1]
    return True


def _owner(schedule: Schedule, chunk: int) -> int:
    return chunk * schedule.ranks // schedule.chunks


def _pair(schedule: Schedule, chunk: int) -> tuple[int, int]:
    pair = chunk * schedule.ranks**2 // schedule.chunks
    return pair // schedule.ranks, pair % schedule.ranks
