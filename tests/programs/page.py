"""The page docs/programs.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.units import grid
from tests.programs.run import Outcome, agree
from tests.programs.table import SECTIONS, Row

#: Times Gloo's above which a row says why.
SLOW = 1.1

_ABOUT = """\
# Programs and features, over Gloo and over tweed

`make programs` writes this page ({minutes} minutes). Each row is one file in [tests/programs](../tests/programs), the same for both backends. It works if it ends and
its first steps give the same numbers over both, to rounding. The ratio is tweed's time by Gloo's: of a step, as long as on the slowest rank, the tenth percentile of a run
(other work on the machine lengthens the rest); under launchers, from the meeting to the end. Runs go in {times} pairs (two under launchers), Gloo and tweed in turn, each of {seconds} seconds; the ratio is the median over pairs,
with the least and the greatest.

{count} rows: {gloo} work over Gloo, {tweed} over tweed. {slow} of {timed} ratios are above 1.1; the median ratio is {median:.2f}.

Measured {where}."""

_HEAD = ("program", "what", "ranks", "Gloo", "tweed", "step over Gloo", "ratio", "least to greatest", "why")


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table."""

    row: Row
    runs: Mapping[str, Sequence[Outcome]]

    def works(self, backend: str) -> bool:
        return not any(outcome.failed for outcome in self.runs[backend]) and not (
            backend == "tweed" and self.differs
        )

    @property
    def differs(self) -> bool:
        """Whether both ended, with other numbers."""
        gloo, tweed = self.runs["gloo"][0], self.runs["tweed"][0]
        return not (gloo.failed or tweed.failed or agree(gloo, tweed))

    @property
    def ratios(self) -> list[float]:
        """Tweed's time by Gloo's, by pair; empty where one of them does not work."""
        if not (self.works("gloo") and self.works("tweed")):
            return []
        pairs = zip(self.runs["gloo"], self.runs["tweed"], strict=True)
        return [tweed.step_s / gloo.step_s for gloo, tweed in pairs if gloo.step_s]

    @property
    def slow(self) -> bool:
        return bool(self.ratios) and statistics.median(self.ratios) > SLOW

    def trouble(self) -> str:
        """What is wrong with a row that lacks its reason; empty: nothing."""
        if self.row.why:
            return ""
        if self.works("gloo") and not self.works("tweed"):
            return "works over Gloo and not over tweed: " + (
                "other numbers" if self.differs else self.runs["tweed"][-1].failed
            )
        return ""

    def cells(self) -> tuple[str, ...]:
        states = ["works" if self.works(backend) else "fails" for backend in ("gloo", "tweed")]
        gloo_s = statistics.median(outcome.step_s for outcome in self.runs["gloo"])
        ratios = self.ratios
        bold = "**" if self.slow else ""
        timed = (
            (f"{1000 * gloo_s:.3g} ms", f"{bold}{statistics.median(ratios):.2f}{bold}", f"{min(ratios):.2f} to {max(ratios):.2f}")
            if ratios
            else ("", "", "")
        )
        return (f"`{self.row.name}`", self.row.title, str(self.row.ranks), *states, *timed, self._why())

    def _why(self) -> str:
        fine = self.works("gloo") and self.works("tweed") and not self.slow
        return "" if fine else self.row.why or self._failure()

    def _failure(self) -> str:
        text = next((outcome.failed for runs in self.runs.values() for outcome in runs if outcome.failed), "")
        return text.replace("|", "\\|")


def render(lines: Sequence[Line], minutes: float, times: int, seconds: float, where: str) -> str:
    """Markdown with every row."""
    ratios = [statistics.median(line.ratios) for line in lines if line.ratios]
    about = _ABOUT.format(
        minutes=round(minutes),
        times=times,
        seconds=seconds,
        count=len(lines),
        gloo=sum(line.works("gloo") for line in lines),
        tweed=sum(line.works("tweed") for line in lines),
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
