"""The first hour of a user, walked where nothing is but a wheel: `python -m tests.first_hour`.

A mount namespace of its own, in which this repository is hidden; an empty home; a path without a compiler.
The wheel of `make wheel` is installed into an empty environment, with what uv's cache has; the README's ten
lines run on four ranks, `tweed train` leaves its first report, and `tweed launch` starts the ten lines on two
hosts, which have an sshd each in network namespaces of a testbed. Prints how long each step took.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.launch.hosts import Hosts, served
from tweed.testbed.namespaces import program

ROOT = Path(__file__).parents[1]
#: Goals of the whole walk, in seconds: to the first report, and from there to two hosts.
_REPORT_S, _HOSTS_S = 300.0, 120.0


class Walk:
    """Steps, each with what it took. `folder` has the wheel, the example, an empty home and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "home").mkdir()
        self.took: list[float] = []
        self.variables = {"PATH": f"{folder}/env/bin", "HOME": f"{folder}/home"}

    def inside(self, words: Sequence[str]) -> list[str]:
        """`words` as a command that sees no repository, and no environment but its own."""
        hide = f'mount -t tmpfs none "{ROOT}" && exec "$@"'
        bare = ["env", "-i", *(f"{name}={value}" for name, value in self.variables.items())]
        return [program("unshare"), "--mount", "sh", "-c", hide, "sh", *bare, *words]

    def step(self, what: str, words: Sequence[str], check: Callable[[str], bool] = bool) -> None:
        """Runs a command, and ends the walk if it fails, or `check` of its output does."""
        self.timed(what, lambda: subprocess.run(self.inside(words), cwd=self.folder, **_CAUGHT), check)

    def timed(
        self,
        what: str,
        run: Callable[[], subprocess.CompletedProcess[str]],
        check: Callable[[str], bool],
    ) -> None:
        began = time.monotonic()
        done = run()
        self.took.append(time.monotonic() - began)
        if done.returncode != 0 or not check(done.stdout):
            sys.exit(f"{what}: exit code {done.returncode}\n{done.stdout}")
        print(f"{self.took[-1]:6.1f} s  {what}", flush=True)


_CAUGHT: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


def _example() -> str:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return str(block)


def _losses(ranks: int) -> Callable[[str], bool]:
    """All ranks have printed their loss, and one model."""
    # Ranks write to one pipe, and a line may begin before another one has ended.
    pattern = re.compile(r"rank \d: loss \d+\.\d{4}, one model: (-?\d+\.\d{4})")

    def check(output: str) -> bool:
        models = pattern.findall(output)
        return len(models) == ranks and len(set(models)) == 1

    return check


def _to_the_report(walk: Walk, wheel: Path) -> None:
    env = walk.folder / "env"
    base = sys._base_executable  # type: ignore[attr-defined]  # not of this environment
    walk.step("an empty environment", [base, "-m", "venv", "--without-pip", str(env)], lambda _: True)
    # The ordinary client, with its cache, whose folder and mirror are this machine's.
    mine = {name: text for name, text in os.environ.items() if name.startswith(("UV_", "SSL_", "PIP_"))}
    own = dict(walk.variables)
    walk.variables |= mine | {"UV_CACHE_DIR": _output("uv", "cache", "dir")}
    client = shutil.copy(shutil.which("uv") or "uv", walk.folder)  # it may be hidden with the repository
    install = [client, "pip", "install", "--python", str(env / "bin/python")]
    lock = walk.folder / "requirements.lock"
    walk.step(
        f"the wheel and what it needs: uv pip install {wheel.name}",
        [*install, "--constraint", str(lock), str(walk.folder / wheel.name)],
    )
    walk.variables = own
    walk.step(
        "the README's ten lines: torchrun --nproc-per-node 4 example.py",
        ["torchrun", "--nproc-per-node", "4", "example.py"],
        _losses(4),
    )
    train = ["tweed", "train", "--task", "digits", "--workers", "2", "--steps", "32", "--name", "first"]
    report = walk.folder / "runs/first/report.html"
    walk.step(f"the first report: {' '.join(train)}", train, lambda _: report.exists())


def _output(*words: str) -> str:
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _on_two_hosts(walk: Walk, hosts: Hosts) -> None:
    env = walk.folder / "env/bin"
    words = [str(env / "tweed"), "launch", "--ssh", hosts.ssh, "a", "b"]
    for name, value in walk.variables.items():
        words += ["--env", f"{name}={value}"]
    command = hosts.bed.command(2, *walk.inside([*words, "--", "example.py"]))
    walk.timed(
        "two hosts: tweed launch a b -- example.py",
        lambda: subprocess.run(command, cwd=walk.folder, **_CAUGHT),
        _losses(2),
    )


def main() -> None:
    """Walks, and tells whether it was quick enough."""
    if os.geteuid() != 0:
        sys.exit("this hides the repository by a mount, and starts sshd: run it as root")
    wheels = sorted(ROOT.glob("dist/*.whl"))
    if not wheels:
        sys.exit("there is no wheel in dist/: make wheel")
    with tempfile.TemporaryDirectory(prefix="tweed-first-hour-") as folder:
        walk = Walk(Path(folder))
        shutil.copy(wheels[-1], folder)
        shutil.copy(ROOT / "requirements.lock", folder)
        (walk.folder / "example.py").write_text(_example())
        _to_the_report(walk, wheels[-1])
        keys = walk.folder / "keys"
        keys.mkdir()
        with served(keys) as hosts:
            _on_two_hosts(walk, hosts)
        report, two = sum(walk.took[:-1]), walk.took[-1]
    print(f"{report:6.1f} s  to the first report; goal: {_REPORT_S:.0f} s")
    print(f"{two:6.1f} s  from there to two hosts; goal: {_HOSTS_S:.0f} s")
    sys.exit(report > _REPORT_S or two > _HOSTS_S)


if __name__ == "__main__":
    main()
