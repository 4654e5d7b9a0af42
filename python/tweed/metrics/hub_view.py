"""How `tweed top` shows a hub: its commits, a table of its members, and why contributions were rejected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from tweed.metrics.hub_snapshot import HubCounts, HubMember
from tweed.metrics.snapshot import Matrix, per_second
from tweed.metrics.words import age, rate, size, table_of

_WIDE = 80  # columns from which on bytes, and keys, have room
_MOST = 24  # members in the table
_TOLD = 3  # members whose last rejection is told
_KEY = 8  # letters of a key that tell members apart


def commits(now: HubCounts, window: HubCounts, seconds: float) -> str:
    """What the hub does, in a line."""
    speed = per_second(window.version, seconds)
    away = "" if now.there == now.known else f", {now.known - now.there:,} away"
    return f"version {now.version:,}, {speed:.1f} commits/s, {now.there:,} members{away}"


def traffic(now: HubCounts, window: HubCounts, seconds: float) -> str:
    """What crosses its links, in a line."""
    came, went = per_second(window.bytes_in, seconds), per_second(window.bytes_out, seconds)
    totals = f"{size(now.bytes_in)} and {size(now.bytes_out)}"
    return f"MB/s: {rate(came)} in, {rate(went)} out; in all {totals}"


def refusals(now: HubCounts) -> str:
    """Who was turned away, in a line; empty: nobody."""
    counts = [f"{count:,} {reason}" for reason, count in sorted(now.refused.items()) if count]
    return f"callers turned away: {', '.join(counts)}" if counts else ""


def members(now: HubCounts, window: HubCounts, seconds: float, width: int) -> Table:
    """A line per member; of many those that have contributed last."""
    chosen = _latest(now.members)
    measured = width >= _WIDE and any(one.up or one.down for one in chosen)
    heads = ["member", "state", "last", "counted", "delay", "late", "rejected"]
    if width >= _WIDE:
        heads[1:1] = ["key"] if now.members and now.members[0].key else []
        heads += ["in", "out", *(["up", "down"] if measured else [])]
    found = table_of(*heads, left=("state", "key"), gap=1 if len(heads) > 10 or width < _WIDE else 2)
    for one in chosen:
        recent = window.member(one.number) or one
        cells = _cells(one, recent, seconds)
        style = "dim" if one.state == "away" else "red" if recent.rejected else ""
        found.add_row(*(cells[head] for head in heads), style=style)
    return found


def _latest(members: Sequence[HubMember]) -> list[HubMember]:
    """The members that are shown, by number."""
    by_time = sorted(members, key=lambda one: float("inf") if one.quiet_s is None else one.quiet_s)
    return sorted(by_time[:_MOST], key=lambda one: one.number)


def _cells(one: HubMember, recent: HubMember, seconds: float) -> dict[str, str]:
    """The cells of a row, by head. Rates are of the window, all others of the whole run."""
    return {
        "member": str(one.number),
        "key": one.key[:_KEY],
        "state": one.state,
        "last": "" if one.quiet_s is None else age(one.quiet_s),
        "counted": f"{one.counted:,}",
        "delay": f"{one.mean_delay:.1f}",
        "late": f"{one.late:,}",
        "rejected": f"{one.rejected:,}",
        "in": rate(per_second(recent.bytes_in, seconds)),
        "out": rate(per_second(recent.bytes_out, seconds)),
        "up": "" if one.up is None else rate(one.up),
        "down": "" if one.down is None else rate(one.down),
    }


def rejections(now: HubCounts, window: HubCounts) -> Iterator[str]:
    """Sentences that say why members were rejected, for those that were rejected most in the window."""
    some = sorted(window.members, key=lambda one: (-one.rejected, one.number))[:_TOLD]
    for one in some:
        total = now.member(one.number) or one
        if one.rejected:
            score = "" if one.score is None else f" (score {one.score:.3g})"
            yield f"Member {one.number}, {total.rejected:,} rejected: {one.reason}{score}."


def show(now: Matrix, window: Matrix, width: int) -> Iterator[Text | Table]:
    """All of it, for rich."""
    if now.hub is None or window.hub is None:
        return
    yield Text(commits(now.hub, window.hub, window.up_s))
    yield Text(traffic(now.hub, window.hub, window.up_s))
    if words := refusals(now.hub):
        yield Text(words, style="yellow")
    yield Text()
    yield members(now.hub, window.hub, window.up_s, width)
    yield from (Text(words, style="red") for words in rejections(now.hub, window.hub))
    hidden = now.hub.known - min(_MOST, len(now.hub.members))
    more = f" {hidden:,} more members are not shown." if hidden > 0 else ""
    units = " in, out: MB/s." if width >= _WIDE else ""
    yield Text(f"delay: commits, on average.{units}{more}", style="dim")
