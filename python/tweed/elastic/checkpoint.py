"""A checkpoint in parts: each of k members writes its k-th part of the state, while training goes on.

FOLDER/latest                                     the step of the last checkpoint, for others than this module
FOLDER/place                                      a name that no other folder has
FOLDER/step-00000200/part-1-of-4-in-7-RUN-DIGEST  bytes of the tensors, as a joiner gets them of this member
FOLDER/step-00000200/part-1-of-4-in-7-RUN.json    what is in it (`Part`), written behind it
FOLDER/step-00000200/structure-DIGEST             all but the bytes of tensors, written before part 0
FOLDER/step-00000200/manifest.json                all parts and their epoch, by whoever has written the last

The most members that see one folder write there, and the others leave it to them (`writers`). Each file is
there whole or not at all, and a checkpoint counts from the last of them on, so a kill at any time leaves the
one before or the new one. Only parts of one epoch of one run form a whole: its members have the same bits
after a step, and those of the next may have summed that step anew. Nothing is removed but what is older than
the one that counts, so who was stopped, and goes on later, removes nothing that others write. If a member is
lost before its part is written, those that go on write theirs again, in the next epoch. What could not be
written is tried again, by who has it before the next part, and what all parts are there of is listed by
whoever writes next.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Thread

from tweed.elastic.state import State, cut, digest_of
from tweed.errors import DataError
from tweed.files import write_atomic

log = logging.getLogger("tweed")

_LATEST, _MANIFEST = "latest", "manifest.json"
_FORMAT = 3  # of the manifest, of names of files, and of the structure


@dataclass(frozen=True, slots=True)
class Part:
    """One of the parts that the tensors of a state are cut into.

    Attributes:
      number, of: which of how many.
      total: bytes of all parts together.
      digest: of its bytes.
      structure: of part 0, the digest of the structure; else empty.
      epoch: in which it was written.
      run: of which, a name.
    """

    number: int
    of: int
    total: int
    digest: str
    structure: str = ""
    epoch: int = 0
    run: str = ""

    @property
    def name(self) -> str:
        """The name of the part, which says its number, its epoch and its run."""
        return f"part-{self.number}-of-{self.of}-in-{self.epoch}-{self.run}"

    @property
    def file(self) -> str:
        """In which it is."""
        return f"{self.name}-{self.digest}"

    @property
    def structure_file(self) -> str:
        """In which the structure is that goes with part 0."""
        return f"structure-{self.structure}"


def whole(parts: Iterable[Part]) -> tuple[Part, ...] | None:
    """The parts that form a whole state, in order, of those that are there: all of one epoch of a run, the
    last that has all. None if some are missing.

    Example:
      >>> whole([Part(1, 2, 8, "b"), Part(0, 3, 8, "c"), Part(0, 2, 8, "a")])[0].digest
      'a'
    """
    sets: dict[tuple[int, int, int, str], dict[int, Part]] = {}
    for part in parts:
        sets.setdefault((part.epoch, part.of, part.total, part.run), {})[part.number] = part
    complete = [key for key, found in sets.items() if set(found) == set(range(key[1]))]
    if not complete:
        return None
    found = sets[max(complete)]
    return tuple(found[number] for number in sorted(found))


def writers(places: Sequence[str]) -> list[int]:
    """Which ranks write the parts: the most that see one folder; of as many, those of the lowest rank.

    Args:
      places: by rank, `Checkpoints.place`; empty for who sees none.

    Example:
      >>> writers(["a", "b", "", "b"])
      [1, 3]
    """
    counts = Counter(filter(None, places))
    return [rank for rank, place in enumerate(places) if counts and place == counts.most_common(1)[0][0]]


class Checkpoints:
    """Where a run's checkpoints are, and how often one is written. For `ElasticRun`.

    Args:
      folder: it need not exist.
      every: steps from one to the next; the last step has one in any case.
    """

    def __init__(self, folder: Path, every: int) -> None:
        self.folder, self.every = folder, every
        self._writer: Thread | None = None
        self._failed: tuple[int, Part, bytes] | None = None  # what it could not write
        self._data = bytearray()  # what it writes, or has written
        self._before = self._step = -1  # the steps of the last two that this process wrote a part of

    @property
    def place(self) -> str:
        """The folder's name, the same for all that see it; empty if nothing can be written there."""
        name, draft = self.folder / "place", self.folder / f"place-{secrets.token_hex(8)}"
        try:
            if not name.exists():
                self.folder.mkdir(parents=True, exist_ok=True)
                write_atomic(draft, draft.name)
                with suppress(FileExistsError):
                    os.link(draft, name)
                draft.unlink()
            return name.read_text()
        except OSError as error:
            log.warning("this process writes no checkpoints: %s", error)
            return ""

    def write(
        self, step: int, number: int, of: int, state: State, written: tuple[int, str] = (0, "")
    ) -> None:
        """Copies this member's part of the state after `step` steps, and writes it in the background. Waits
        first for what it has yet to write of the one before.

        What cannot be written is logged, and tried again by the next `wait`; the checkpoint before stays.

        Args:
          written: in which epoch, and the run's name.
        """
        self.wait()
        epoch, run = written
        self._failed = None
        self._before, self._step = (self._step, step) if step != self._step else (self._before, step)
        self._data = state.part(*cut(state.bytes, number, of), self._data)
        structure = state.structure() if number == 0 else b""
        job = (step, Part(number, of, state.bytes, "", epoch=epoch, run=run), structure)
        self._writer = Thread(target=self._write, args=job, name="tweed-checkpoint")
        self._writer.start()

    def wait(self) -> None:
        """Until this process has written its part. What it could not write is tried once more."""
        if self._writer is not None:
            self._writer.join()
        if self._failed is not None:
            job, self._failed = self._failed, None
            self._write(*job)

    def load(self) -> State | None:
        """The state that counts; None if there is none.

        Raises: DataError if it is damaged, and where.
        """
        step = self.latest()
        if step is None:
            return None
        here = self._place(step)
        parts = self._parts(here)
        tensors = bytearray()
        for part in parts:
            tensors += _read(here / part.file, part.digest)
        return State.assembled(_read(here / parts[0].structure_file, parts[0].structure), tensors)

    def latest(self) -> int | None:
        """The step of the last one that is whole; None if there is none.

        The mark alone does not say: who was stopped while it wrote, and is no member any more, may set it
        back when it goes on.
        """
        mark = self.folder / _LATEST
        steps = [_step(manifest.parent) for manifest in self.folder.glob(f"step-*/{_MANIFEST}")]
        return max([*steps, int(mark.read_text())] if mark.exists() else steps, default=None)

    def epoch(self) -> int:
        """Whose members have written the last one that is whole; 0 if there is none.

        Raises: DataError if its manifest is damaged.
        """
        step = self.latest()
        return 0 if step is None else self._parts(self._place(step))[0].epoch

    def finish(self) -> None:
        """What all parts are there of counts: this run's, or what an earlier one could not finish."""
        latest = self.latest()
        for here in self._steps():
            is_next = latest is None or _step(here) > latest
            if is_next and (parts := whole(_records(here))) is not None:
                latest = _step(here)
                manifest = {"format": _FORMAT, "epoch": parts[0].epoch, "parts": list(map(asdict, parts))}
                write_atomic(here / _MANIFEST, json.dumps(manifest))
                write_atomic(self.folder / _LATEST, str(latest))
        self._forget(lambda other: latest is not None and other < latest)

    def _parts(self, here: Path) -> tuple[Part, ...]:
        """The parts of a checkpoint that is whole, in order."""
        try:
            found = json.loads((here / _MANIFEST).read_text())
            parts = whole(Part(**part) for part in found["parts"]) if found["format"] == _FORMAT else None
        except FileNotFoundError:
            raise DataError(f"{here} was not written in parts, by members: it has no {_MANIFEST}") from None
        except (ValueError, TypeError, KeyError):
            parts = None
        if parts is None:
            raise DataError(
                f"{here / _MANIFEST} is damaged, or of an earlier version of tweed, which this one does not "
                "read: it does not list all parts. Put back a copy, or begin anew in another folder"
            )
        return parts

    def _place(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def _steps(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"))

    def _write(self, step: int, part: Part, structure: bytes) -> None:
        here = self._place(step)
        try:
            # Older ones that came to nothing; others may still write the one before.
            self._forget(lambda other: other < self._before and other != self.latest())
            here.mkdir(parents=True, exist_ok=True)
            part = replace(part, digest=digest_of(self._data).hex())
            if part.number == 0:
                part = replace(part, structure=digest_of(structure).hex())
                write_atomic(here / part.structure_file, structure)
            write_atomic(here / part.file, self._data)
            write_atomic(here / f"{part.name}.json", json.dumps(asdict(part)))
            self.finish()
        except OSError as error:
            kept = self.latest()
            if kept is not None and kept >= step:
                return  # nobody needs it any more
            self._failed = (step, part, structure)
            stays = "there is none before it" if kept is None else f"that of step {kept} stays"
            text = "the checkpoint of step %d is not written: %s; %s. It is tried again before the next"
            log.warning(text, step, error, stays)
            if not (here / f"{part.name}.json").exists():
                (here / part.file).unlink(missing_ok=True)  # others may need the room

    def _forget(self, is_old: Callable[[int], bool]) -> None:
        for old in self._steps():
            if is_old(_step(old)):
                shutil.rmtree(old, ignore_errors=True)


def _step(place: Path) -> int:
    return int(place.name.removeprefix("step-"))


def _records(here: Path) -> Iterator[Part]:
    """The records of the parts that are there; others may remove them meanwhile."""
    for path in here.glob("part-*-in-*.json"):
        with suppress(FileNotFoundError):
            yield Part(**json.loads(path.read_text()))


def _read(path: Path, digest: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"a part of a checkpoint cannot be read: {error}") from error
    if digest_of(data).hex() != digest:
        raise DataError(
            f"{path} is damaged: it has other bytes than were written. Put back a copy of it, or begin anew "
            "in another folder"
        )
    return data
