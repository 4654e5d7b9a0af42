"""Seeds of a fuzz target as one text file, an input per line in hexadecimal; libFuzzer wants a file each.

`corpus.py unpack TEXT FOLDER` and `corpus.py pack FOLDER TEXT`.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path


def unpack(text: Path, folder: Path) -> None:
    """Writes each line of `text` as a file of `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for line in text.read_text().split() if text.exists() else []:
        seed = bytes.fromhex(line)
        (folder / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)


def pack(folder: Path, text: Path) -> None:
    """Writes the files of `folder` as the lines of `text`, the short ones first."""
    seeds = {path.read_bytes() for path in folder.iterdir()}
    lines = [seed.hex() for seed in sorted(seeds, key=lambda seed: (len(seed), seed)) if seed]
    text.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    what, source, target = sys.argv[1:]
    {"unpack": unpack, "pack": pack}[what](Path(source), Path(target))
