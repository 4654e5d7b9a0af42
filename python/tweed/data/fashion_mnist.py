"""Fashion-MNIST: 70,000 grey pictures of clothes, 28 by 28, in ten classes.

Source: Xiao, Rasul, Vollgraf, "Fashion-MNIST: a novel image dataset for benchmarking machine learning
algorithms", 2017. MIT licence.
"""

from __future__ import annotations

import gzip
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tweed.data.arrays import Arrays, Files, Split
from tweed.data.sources import Source, debian_package, download

ABOUT = "70,000 grey pictures of clothes, 28 x 28, ten classes"
#: Checksums of the unpacked files: archives differ in how they were packed.
FILES = {
    "train-images": {"c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"},
    "train-labels": {"bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"},
    "t10k-images": {"5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"},
    "t10k-labels": {"0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"},
}
ADVICE = (
    "Without a network: run `tweed data get fashion-mnist` on a machine that has one and copy its folder to "
    "{folder}, or install Debian's package dataset-fashion-mnist. The task digits needs no network."
)
_PACKAGE = "dataset-fashion-mnist"
_PACKAGE_FOLDER = "/usr/share/datasets/fashion-mnist"
_HOME = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/b2617bb/data/fashion/"
_ARCHIVES = {name: f"{name}-idx{3 if 'images' in name else 1}-ubyte.gz" for name in FILES}


def _from_debian() -> dict[str, bytes]:
    found = debian_package(_PACKAGE, _PACKAGE_FOLDER, list(_ARCHIVES.values()))
    return {name: gzip.decompress(found[archive]) for name, archive in _ARCHIVES.items()}


def _from_home(home: str) -> dict[str, bytes]:
    return {name: gzip.decompress(download(home + archive)) for name, archive in _ARCHIVES.items()}


SOURCES = (
    Source("Debian's package dataset-fashion-mnist", _from_debian),
    Source("the public download", partial(_from_home, _HOME)),
)


def _pictures(content: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return content[16:].reshape(-1, 28, 28)  # after four big-endian words: magic, count, rows, columns


def arrays(files: Files) -> Arrays:
    """Pictures `[n, 28, 28]` and classes `[n]`."""
    train = Split(_pictures(files["train-images"]), files["train-labels"][8:])
    test = Split(_pictures(files["t10k-images"]), files["t10k-labels"][8:])
    return Arrays(train, test, train.y.astype(np.int64), classes=10)
