"""How `tweed top` shows a run: who arrives last, tables of ranks and of their time, the matrix of links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from tweed.metrics import hub_view
from tweed.metrics.snapshot import Arrival, Link, Matrix, Row, TimeShares, arrivals, laggard, per_second
from tweed.metrics.words import duration, milliseconds, rate, size, table_of

_SILENT_S = 5.0  # a rank that has told nothing for longer is marked
_HEAD, _CELL = 7, 9  # columns of the terminal for a row's head, and for each rank of the matrix
_COLUMNS = ("rank", "host", "out MB/s", "in MB/s", "sent", "resent", "last", "late")
_LEFT_OUT, _WIDE = {"in MB/s", "sent", "resent"}, 76  # of them, in terminals of fewer columns
_HOST = 16  # letters of a host's name
_BAR = 20  # letters of a line of time
#: How a line of time shows what a rank did.
_LETTERS = {"computing": ("█", "green"), "encoding": ("▒", "yellow"), "waiting": ("░", "red")}
_BUSIEST = 12  # links in the list that stands where the matrix would be too wide


@dataclass(frozen=True, slots=True)
class View:
    """Can be printed by rich, at any width.

    Args:
      now: the latest matrix; totals are taken from it.
      window: the difference to an earlier one; rates, and who arrives last, are of this time.
      note: what else is to be said, such as that the run has ended.
    """

    now: Matrix
    window: Matrix
    note: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield Text(title(self.now), style="bold")
        if self.now.ranks > 1:
            yield from self._group(options.max_width)
        yield from hub_view.show(self.now, self.window, options.max_width)
        if self.note:
            yield Text(self.note, style="bold red")

    def _group(self, width: int) -> Iterator[RenderableType]:
        yield Text(progress(self.now, self.window))
        yield Text(blame(self.window), style="yellow")
        yield from (Text(words, style="red") for words in silences(self.now))
        yield Text()
        yield ranks(self.now, self.window, width)
        yield Text()
        if (of_time := times(self.window, width)).row_count:
            yield from (of_time, Text())
        yield from self._links(width)
        if self.now.hub is not None:
            yield Text()

    def _links(self, width: int) -> Iterator[RenderableType]:
        if _HEAD + _CELL * self.now.ranks <= width:
            yield links(self.window, self.now.ranks)
            yield Text("In the matrix: MB/s sent, +segments sent again; below, the round trip.", style="dim")
            return
        table = busiest(self.now, self.window)
        yield table
        count = sum(len(row.links) for row in self.window.rows)
        yield Text(f"These are the {table.row_count} busiest of {count} links.", style="dim")


def title(now: Matrix) -> str:
    """Which run it is."""
    missing = now.ranks - len(now.rows)
    waiting = f", {missing} not heard of yet" if missing else ""
    of = "" if now.epoch is None else f" of epoch {now.epoch}"
    what = f"{now.ranks} ranks{of}{waiting}" if now.ranks > 1 else "a hub"
    return f"{now.run}: {what}, up {duration(now.up_s)}, process {now.pid}"


def progress(now: Matrix, window: Matrix) -> str:
    """How far training is, by rank 0's count, and of what time the metrics are."""
    words = [f"metrics of the last {duration(window.up_s)}"]
    first, recent = now.row(0), window.row(0)
    if first and recent and first.training and recent.training:
        speed = per_second(recent.training.steps, recent.up_s)
        waited = min(1.0, per_second(recent.training.waiting_s, recent.up_s))
        words = [f"step {first.training.steps:,}", f"{speed:.1f} steps/s", f"{waited:.0%} waiting", *words]
    return ", ".join(words)


def blame(window: Matrix) -> str:
    """Who costs the others most time, in a sentence."""
    late = laggard(window)
    row = window.row(late.rank) if late else None
    if late is None or row is None:
        return "Nobody arrives late."
    much = f"last in {late.share:.0%}, {milliseconds(late.late_s)} late on average"
    return f"Rank {late.rank} on {shortened(row.host)} holds up the others: {much}."


def silences(now: Matrix) -> Iterator[str]:
    """Who has told nothing for long, in sentences."""
    for row in now.rows:
        if row.silent_s > _SILENT_S:
            yield f"Rank {row.rank} has told nothing for {duration(row.silent_s)}."


def ranks(now: Matrix, window: Matrix, width: int = 80) -> Table:
    """One line per rank; where the terminal is narrow, without what is least missed."""
    shown = [head for head in _COLUMNS if width >= _WIDE or head not in _LEFT_OUT]
    table = table_of(*shown)
    last = laggard(window)
    for row, arrival in zip(window.rows, arrivals(window), strict=True):
        style = "yellow" if last is not None and row.rank == last.rank else ""
        cells = _cells(row, now.row(row.rank) or row, arrival)
        table.add_row(*(cells[head] for head in shown), style=style)
    return table


def _cells(row: Row, total: Row, arrival: Arrival) -> dict[str, str]:
    cells = (
        str(row.rank),
        shortened(row.host),
        rate(row.rate("bytes_out")),
        rate(row.rate("bytes_in")),
        size(total.total("bytes_out")),
        f"{total.total('retransmissions'):,.0f}",
        f"{arrival.share:.0%}",
        milliseconds(arrival.late_s),
    )
    return dict(zip(_COLUMNS, cells, strict=True))


def times(window: Matrix, width: int = 80) -> Table:
    """One line per rank that trains: what it did, and how much of its exchanges was hidden behind that."""
    shares = (*_LETTERS, "under way", "hidden") if width >= _WIDE else ("waiting", "hidden")
    table = table_of("rank", "time", *shares, left=("time",))
    for row in window.rows:
        if (of_time := TimeShares.of(row)) is not None:
            each = [f"{getattr(of_time, name.replace(' ', '_')):.0%}" for name in shares]
            table.add_row(str(row.rank), _line(of_time), *each)
    return table


def _line(shares: TimeShares) -> Text:
    """As many letters as there is room for, by the share of each."""
    line, until = Text(), 0.0
    for name, (letter, style) in _LETTERS.items():
        began = round(_BAR * until)
        until += getattr(shares, name)
        line.append(letter * (round(_BAR * until) - began), style=style)
    return line


def links(window: Matrix, size: int) -> Table:
    """The matrix: who sends to whom how fast, and what was sent again; below, the round trip."""
    table = table_of("from/to", *map(str, range(size)))
    for row in window.rows:
        table.add_row(str(row.rank), *(_link_cell(row, peer) for peer in range(size)))
    return table


def _link_cell(row: Row, peer: int) -> Text:
    link = row.link(peer)
    if link is None or peer == row.rank:
        return Text("" if peer == row.rank else "·", style="dim")
    cell = Text(rate(per_second(link.bytes_out, row.up_s)))
    cell.append(f" +{link.retransmissions}" if link.retransmissions else "", style="red")
    return cell.append(f"\n{_trip(link)}", style="dim")


def busiest(now: Matrix, window: Matrix) -> Table:
    """The links that carry most, for runs of many ranks."""
    table = table_of("from", "to", "MB/s", "round trip", "resent", "sent")
    ends = [(row, link) for row in window.rows for link in row.links]
    for row, link in sorted(ends, key=lambda end: -end[1].bytes_out)[:_BUSIEST]:
        total = (now.row(row.rank) or row).link(link.peer) or link
        speed = rate(per_second(link.bytes_out, row.up_s))
        cells = (speed, _trip(link), str(link.retransmissions), size(total.bytes_out))
        table.add_row(str(row.rank), str(link.peer), *cells)
    return table


def _trip(link: Link) -> str:
    return link.kind if link.rtt_s is None else milliseconds(link.rtt_s)


def shortened(host: str) -> str:
    """A host's name without its domain, and not too long."""
    name = host.partition(".")[0] if not host.replace(".", "").isdigit() else host
    return name if len(name) <= _HOST else name[: _HOST - 1] + "…"
