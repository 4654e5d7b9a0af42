"""Digits: 1,797 grey pictures of handwritten digits, 8 by 8, that scikit-learn brings along.

Source: Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI repository, 1998.
"""

from __future__ import annotations

import numpy as np

from tweed.data.arrays import Arrays, Files, Split
from tweed.data.sources import Source

ABOUT = "1,797 grey pictures of digits, 8 x 8, ten classes; comes with scikit-learn"
FILES = {
    "images": {"8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3"},
    "labels": {"8ba4f891220f5e4c9c819638d1602d74b83618f167043c6da52a2a247841ddf0"},
}
ADVICE = "It comes with scikit-learn: install that package anew. What was found there would go to {folder}."


def _from_scikit_learn() -> dict[str, bytes]:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return {"images": images.astype(np.uint8).tobytes(), "labels": labels.astype(np.uint8).tobytes()}


SOURCES = (Source("scikit-learn", _from_scikit_learn),)


def arrays(files: Files) -> Arrays:
    """Pictures `[n, 8, 8]` with values 0 to 16, and classes `[n]`. Every fifth sample is for testing."""
    images, labels = files["images"].reshape(-1, 8, 8), files["labels"]
    held = np.arange(len(labels)) % 5 == 4
    train, test = Split(images[~held], labels[~held]), Split(images[held], labels[held])
    return Arrays(train, test, train.y.astype(np.int64), classes=10)
