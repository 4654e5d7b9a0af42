"""The page docs/programs.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.run import quantile
from bench.units import grid, seconds
from tests.programs.run import Compared, agree
from tests.programs.table import SECTIONS, Row

#: Times Gloo's above which a row says why.
SLOW = 1.1

_ABOUT = """\
# Programs and features, over Gloo and over tweed

`make programs` writes this page. Each row is one file in
[tests/programs](../tests/programs), the same for both backends. It works if it ends and its first steps give
the same numbers over both, to rounding. Times are of a step, as long as on the slowest rank: both live at
once, and have turns of about 30 ms, {pairs} each. The ratio is tweed's time by Gloo's of the same pair of
turns: the median, and the middle half. Launched programs are not timed: most of their time is the import of
torch.

{count} rows: {gloo} work over Gloo, {tweed} over tweed. {slow} of {timed} ratios are above 1.1; the median
ratio is {median:.2f}.

Measured: {where}. Above a load of 1 others were at work, and ratios near 1 are not to be trusted."""

_HEAD = ("program", "what", "ranks", "Gloo", "tweed", "step over Gloo", "ratio", "middle half", "why")


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table."""

    row: Row
    found: Compared

    @property
    def works(self) -> dict[str, bool]:
        """By backend. Over tweed it must give Gloo's numbers."""
        return {"gloo": not self.found.gloo.failed, "tweed": not (self.found.tweed.failed or self.differs)}

    @property
    def differs(self) -> bool:
        """Whether both ended, with other numbers."""
        gloo, tweed = self.found.gloo, self.found.tweed
        return not (gloo.failed or tweed.failed or agree(gloo, tweed))

    @property
    def ratios(self) -> list[float]:
        """Tweed's time by Gloo's, in order; empty where one of them does not work."""
        return sorted(tweed / gloo for gloo, tweed in self.found.pairs_s) if not self.differs else []

    @property
    def slow(self) -> bool:
        return bool(self.ratios) and statistics.median(self.ratios) > SLOW

    def trouble(self) -> str:
        """What is wrong with a row that lacks its reason; empty: nothing."""
        if self.row.why or self.works["tweed"] or not self.works["gloo"]:
            return ""
        return f"works over Gloo and not over tweed: {self.found.tweed.failed or 'other numbers'}"

    def cells(self) -> tuple[str, ...]:
        states = ["works" if works else "fails" for works in self.works.values()]
        return (
            f"`{self.row.name}`",
            self.row.title,
            str(self.row.ranks),
            *states,
            *self._times(),
            self._why(),
        )

    def _times(self) -> tuple[str, str, str]:
        if not (ratios := self.ratios):
            return "", "", ""
        gloo_s = statistics.median(gloo for gloo, _ in self.found.pairs_s)
        bold = "**" if self.slow else ""
        low, high = quantile(ratios, 0.25), quantile(ratios, 0.75)
        return seconds(gloo_s), f"{bold}{statistics.median(ratios):.2f}{bold}", f"{low:.2f} to {high:.2f}"

    def _why(self) -> str:
        if not all(self.works.values()):
            failed = self.found.gloo.failed or self.found.tweed.failed
            return self.row.why or failed.replace("|", "\\|")
        if self.slow and quantile(self.ratios, 0.25) <= 1:
            return "not told apart: 1 is in the middle half"
        return self.row.why if self.slow else ""


def render(lines: Sequence[Line], pairs: int, where: str) -> str:
    """Markdown with every row."""
    ratios = [statistics.median(line.ratios) for line in lines if line.ratios]
    about = _ABOUT.format(
        pairs=pairs,
        count=len(lines),
        gloo=sum(line.works["gloo"] for line in lines),
        tweed=sum(line.works["tweed"] for line in lines),
        slow=sum(ratio > SLOW for ratio in ratios),
        timed=len(ratios),
        median=statistics.median(ratios) if ratios else float("nan"),
        where=where,
    )
    return "\n\n".join([about, *_tables(lines)]) + "\n"


def _tables(lines: Sequence[Line]) -> Iterator[str]:
    for section, title in SECTIONS.items():
        if found := [line.cells() for line in lines if line.row.section == section]:
            yield f"## {title}"
            yield grid(_HEAD, found)
