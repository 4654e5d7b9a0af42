"""`runs/NAME`: what was asked, what came out, and where to go on.

run.json        settings, versions, machine, command line
metrics.jsonl   one JSON object per line; `side` says whose
links.jsonl     in a testbed, the same for what links have counted since a side's workers were started
epochs.jsonl    where members come and go, a line per epoch, see `elastic_worker.Entered`
commits.jsonl   of a hub: a line per commit; `events.log` all that it was given: see `hub_task`
checkpoints/    see `checkpoint`
report.html     see `tweed.report`
"""

from __future__ import annotations

import errno
import json
import os
import platform
import shlex
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from tweed import distribution
from tweed.errors import UsageError
from tweed.files import write_atomic
from tweed.train.settings import Settings, differences
from tweed.train.tasks import row
from tweed.train.world import one_host

#: Of `run.json` and of the files beside it; another one means other figures or other checkpoints.
FORMAT = 2
#: File in a side's checkpoints that names the step that counts.
LATEST = "latest"
PLAN = "plan.json"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run. `path` need not exist until `start`."""

    path: Path

    @property
    def metrics(self) -> Path:
        """The figures of all sides."""
        return self.path / "metrics.jsonl"

    @property
    def links(self) -> Path:
        """What links have counted."""
        return self.path / "links.jsonl"

    @property
    def epochs(self) -> Path:
        """Who was a member from when on."""
        return self.path / "epochs.jsonl"

    @property
    def commits(self) -> Path:
        """What a hub has committed."""
        return self.path / "commits.jsonl"

    @property
    def events(self) -> Path:
        """All that a hub's machine was given; see `hub_task`."""
        return self.path / "events.log"

    def checkpoints(self, side: str) -> Path:
        """Folder of a side's checkpoints."""
        return self.path / "checkpoints" / side

    def check_free(self) -> None:
        """Raises UsageError if a run of this name is there already."""
        if self._facts.exists():
            advice = "--resume goes on with it, another --name starts anew"
            raise UsageError(f"{self.path} is there already: {advice}")

    def start(
        self, settings: Settings, argv: list[str], unshaped: str | None = None, spread: bool = False
    ) -> None:
        """Makes the folder for a new run.

        Args:
          unshaped: why the run goes on without the network that was asked for.
          spread: its workers may be on several hosts, whatever this process can tell.

        Raises: UsageError as `check_free`.
        """
        self.check_free()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot write the run to {self.path.absolute()}: {error.strerror}; go to a folder that can "
                "be written to"
            ) from None
        facts = machine() | {
            "format": FORMAT,
            "settings": settings.to_json(),
            "sides": settings.sides,
            "command": shlex.join(argv),
            "unshaped": unshaped,
        }
        facts |= {"one_host": one_host() and not spread, "test_samples": row(settings.task).test_samples}
        write_atomic(self._facts, json.dumps(facts, indent=2))
        self.metrics.touch()

    def resume(self, given: dict[str, Any]) -> Settings:
        """Settings of the run that is here.

        Args:
          given: settings asked for by name; they must be those of the run, but for more steps, which make it
            longer from now on.

        Raises: UsageError as `facts`, or if it had other settings; names them.
        """
        if not self._facts.exists():
            raise UsageError(f"there is no run to resume in {self.path}: omit --resume to start it")
        stored = Settings.from_json(self.facts()["settings"])
        longer = replace(stored, steps=max(stored.steps, given.get("steps", 0)))
        if other := differences(longer, given):
            raise UsageError(f"cannot resume {self.path} with other settings: {'; '.join(other)}")
        if longer != stored:
            write_atomic(self._facts, json.dumps(self.facts() | {"settings": longer.to_json()}, indent=2))
        return longer

    @property
    def _facts(self) -> Path:
        return self.path / "run.json"

    def facts(self) -> dict[str, Any]:
        """What `start` noted. Raises: UsageError if no run is here, or one of another version of tweed."""
        if not self._facts.exists():
            raise UsageError(f"there is no run in {self.path}: it has no run.json")
        facts: dict[str, Any] = json.loads(self._facts.read_text())
        found = facts.get("format", 1)
        if found != FORMAT:
            raise UsageError(
                f"{self.path} has format {found}, this tweed reads {FORMAT}: time and bytes were counted "
                "otherwise; start a new run"
            )
        return facts

    def figures(self) -> list[dict[str, Any]]:
        """All figures told so far. A last line that was cut off by a crash is left out."""
        lines = self.metrics.read_text().split("\n")[:-1] if self.metrics.exists() else []
        return [json.loads(line) for line in lines]

    def append(self, figures: dict[str, Any]) -> None:
        """Adds a line to the figures."""
        _add_line(self.metrics, figures)

    def append_epoch(self, entered: dict[str, Any]) -> None:
        """Adds a line to the epochs."""
        _add_line(self.epochs, entered)

    def epoch_lines(self) -> list[dict[str, Any]]:
        """What `append_epoch` has noted. A line that was cut off by a crash is left out."""
        lines = self.epochs.read_text().split("\n")[:-1] if self.epochs.exists() else []
        return [json.loads(line) for line in lines]

    def append_commit(self, commit: dict[str, Any]) -> None:
        """Adds a line to what a hub has committed."""
        _add_line(self.commits, commit)

    def commit_lines(self) -> list[dict[str, Any]]:
        """What `append_commit` has noted, by version: of one that a hub committed again, when it was started
        from a checkpoint, the latter. A line that was cut off by a crash is left out."""
        lines = self.commits.read_text().split("\n")[:-1] if self.commits.exists() else []
        by_version = {line["version"]: line for line in map(json.loads, lines)}
        return [by_version[version] for version in sorted(by_version)]

    def append_links(self, side: str, counted: list[dict[str, int]], findings: list[str]) -> None:
        """Adds what the links of a side's workers have counted, by rank, and what is wrong with that."""
        _add_line(self.links, {"side": side, "counted": counted, "findings": findings})

    def link_lines(self) -> list[dict[str, Any]]:
        """What `append_links` has noted."""
        lines = self.links.read_text().splitlines() if self.links.exists() else []
        return [json.loads(line) for line in lines]

    def findings(self) -> list[str]:
        """What was wrong with what links have counted."""
        return [finding for line in self.link_lines() for finding in line["findings"]]

    def cut(self, side: str, step: int) -> None:
        """Drops figures of `side`, and epochs, after `step`: a resumed run tells them anew."""
        kept = [row for row in self.figures() if row["side"] != side or row["step"] <= step]
        write_atomic(self.metrics, "".join(json.dumps(row) + "\n" for row in kept))
        if self.epochs.exists():
            begun = [row for row in self.epoch_lines() if row["step"] < step]
            write_atomic(self.epochs, "".join(json.dumps(row) + "\n" for row in begun))


def _add_line(path: Path, value: dict[str, Any]) -> None:
    """Adds a line of JSON, or nothing. Raises: OSError, as on a full disk."""
    line = (json.dumps(value) + "\n").encode()
    with path.open("ab", buffering=0) as file:
        begin = file.tell()
        if (written := file.write(line)) < len(line):
            file.truncate(begin)
            raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes could be written", str(path))


def latest(checkpoints: Path) -> int:
    """The step of the checkpoint that counts in a side's folder; 0 if there is none."""
    mark = checkpoints / LATEST
    return int(mark.read_text()) if mark.exists() else 0


def plan_of(checkpoints: Path) -> dict[str, str]:
    """The environment in which a side goes on by the schedules that it ran before: sums round the same.

    Empty without a checkpoint, or where the user gives a plan.
    """
    path = checkpoints / PLAN
    return {"TWEED_PLAN": str(path)} if path.exists() and "TWEED_PLAN" not in os.environ else {}


def machine() -> dict[str, Any]:
    """Facts about the software and the machine that figures depend on."""
    names = {"tweed": distribution.NAME, "torch": "torch", "numpy": "numpy"}
    versions = {name: _version(package) for name, package in names.items()}
    return {
        "versions": versions | {"python": platform.python_version()},
        "machine": {
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "kernel": platform.release(),
        },
        "started": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
