"""What was found, as a table and as a list of what failed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: What a case may come to. `refused`: by an error of tweed's that says what it does not take.
#: `no reference`: it works here, and fails on the host.
OK, REFUSED, DIFFERS, FAILED, NOT_RUN, NO_REFERENCE = (
    "ok",
    "refused",
    "differs",
    "failed",
    "not run",
    "no reference",
)


@dataclass(frozen=True, slots=True)
class Row:
    """A case over one backend.

    Attributes:
      part, case: what was checked.
      backend: of the process group; "-": none.
      word: one of those above.
      log: the reason, where that is not "ok": tracebacks of its ranks.
    """

    part: str
    case: str
    backend: str
    word: str
    log: str = ""

    @property
    def ours(self) -> bool:
        """Whether tweed is what was checked."""
        return self.backend in ("tweed", "-")

    @property
    def bad(self) -> bool:
        return self.ours and self.word not in (OK, REFUSED, NO_REFERENCE)

    def report(self) -> str:
        """Its part of the log."""
        return f"== {self.part} {self.case} {self.backend}: {self.word}\n{self.log}\n"


def render(rows: Sequence[Row]) -> str:
    """A line for each case, with a column for each backend, in Markdown; then the reasons and the counts."""
    return "\n".join([*_table(rows), "", *_reasons(rows), _count(rows)])


def _table(rows: Sequence[Row]) -> Iterator[str]:
    """What needs no group has its word in the first column."""
    backends = list(dict.fromkeys(row.backend for row in rows if row.backend != "-")) or ["-"]
    cases: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        column = backends[0] if row.backend == "-" else row.backend
        cases.setdefault((row.part, row.case), {})[column] = row.word
    yield f"| part | case | {' | '.join(backends)} |"
    yield "|---" * (2 + len(backends)) + "|"
    for (part, case), words in cases.items():
        yield f"| {part} | {case} | {' | '.join(words.get(backend, '') for backend in backends)} |"


def _reasons(rows: Sequence[Row]) -> Iterator[str]:
    """The last line of each log."""
    for row in rows:
        if row.word != OK:
            last = (row.log.strip().splitlines() or ["no reason known"])[-1]
            yield f"{row.part} {row.case} {row.backend}: {row.word}: {last}"


def _count(rows: Sequence[Row]) -> str:
    ours = [row for row in rows if row.ours]
    works, bad = sum(row.word == OK for row in ours), sum(row.bad for row in ours)
    return f"{works} of {len(ours)} cases work over tweed; {bad} do not"
