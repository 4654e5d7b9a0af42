"""The rules of the house that no linter knows."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests import docstrings

HOUSE = Path(__file__).parents[1]
CRATES = sorted(path.parent.name for path in HOUSE.glob("crates/*/Cargo.toml"))

# Which crates a crate may use. Arrows point down only.
ARROWS = {
    "rng": set(),
    "schedule": {"rng"},
    "kernels": {"rng"},
    "proto": {"rng", "schedule", "kernels"},
    "sim": {"rng", "schedule", "proto", "kernels"},
    "net": {"rng", "schedule", "proto", "kernels"},
    "emu": {"rng"},
    "loom": set(),
    "py": {"schedule", "proto", "kernels", "sim", "net", "emu"},
}
IMPURE = ["net", "py"]

# The rooms of the two large crates (folders, and files beside lib.rs), from below. A room uses only rooms of
# rows before its own.
ROOMS = {
    "proto": [
        {"layout", "program", "spans"},
        {"executor"},
        {"trace", "late", "ltp", "relay", "hub", "objects"},
        {"engine", "members"},
    ],
    "net": [
        {"system_error"},
        {"sync", "stderr", "process", "framing"},
        {"secure"},
        {"link"},
        {"ltp", "operation", "relay"},
        {"engine"},
        {"connect"},
        {"hub"},
        {"objects"},
        {"group"},
        {"node"},
        {"leaving", "ctable", "parsers"},
    ],
}


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((HOUSE / name).read_text())


def _bare(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9_.-]", requirement)[0]


#: Extras whose pins do not go with the lock.
NOT_LOCKED = {"flower"}


def _python_dependencies(*, locked: bool = False) -> set[str]:
    project = _toml("pyproject.toml")
    extras = {
        name: wanted
        for name, wanted in project["project"]["optional-dependencies"].items()
        if not (locked and name in NOT_LOCKED)
    }
    wanted = (
        project["project"]["dependencies"]
        + project["dependency-groups"]["tools"]
        + project["dependency-groups"]["docs"]
        + [name for extra in extras.values() for name in extra]
    )
    return {_bare(requirement) for requirement in wanted}


def _rust_dependencies() -> set[str]:
    crates = [_toml(f"crates/{crate}/Cargo.toml") for crate in CRATES] + [_toml("fuzz/Cargo.toml")]
    crates += [target for crate in crates for target in crate.get("target", {}).values()]
    tables = ("dependencies", "dev-dependencies")
    named = {name for crate in crates for table in tables for name in crate.get(table, {})}
    return {name for name in named if not name.startswith("tweed-")}


@pytest.mark.parametrize("crate", CRATES)
def test_a_crate_uses_only_crates_below_it(crate: str) -> None:
    wanted = _toml(f"crates/{crate}/Cargo.toml").get("dependencies", {})
    inner = {name.removeprefix("tweed-") for name in wanted if name.startswith("tweed-")}
    assert inner <= ARROWS[crate]


def test_only_impure_crates_are_free_of_the_rules_for_pure_ones() -> None:
    assert sorted(path.parent.name for path in HOUSE.glob("crates/*/clippy.toml")) == IMPURE


def _rust_files(crate: str) -> dict[Path, tuple[str, ...]]:
    """The files of a crate that are not tests, each with the path of its module."""
    src = HOUSE / "crates" / crate / "src"
    paths = [path for path in src.rglob("*.rs") if not path.stem.endswith("_model") and path.stem != "tests"]
    inner = {path: path.relative_to(src).with_suffix("").parts for path in paths if path.name != "lib.rs"}
    return {path: parts[:-1] if parts[-1] == "mod" else parts for path, parts in inner.items()}


def _used_by(path: Path, module: tuple[str, ...]) -> set[str]:
    """The names that a file takes from the root of its crate, by `crate::` or by as many `super::`."""
    code = re.split(r"\n#\[cfg\((?:all\()?test\b", path.read_text())[0]  # tests stand at the end
    code = re.sub(r"//.*", "", code)
    root = rf"(?:\bcrate::|(?<!::)\b(?:super::){{{len(module)}}})"
    return set(re.findall(rf"{root}(\w+|\{{)", code))


@pytest.mark.parametrize("crate", ROOMS)
def test_a_room_of_a_crate_uses_only_rooms_below_it(crate: str) -> None:
    row = {room: number for number, rooms in enumerate(ROOMS[crate]) for room in rooms}
    files = _rust_files(crate)
    assert {module[0] for module in files.values()} == set(row)
    upwards = [
        f"{path.relative_to(HOUSE)} uses crate::{used}"
        for path, module in files.items()
        for used in _used_by(path, module) - {module[0]}
        if row.get(used, len(row)) >= row[module[0]]
    ]
    assert upwards == []


@pytest.mark.parametrize("crate", CRATES)
def test_a_crate_takes_the_lints_of_the_workspace(crate: str) -> None:
    assert _toml(f"crates/{crate}/Cargo.toml")["lints"] == {"workspace": True}


def test_the_lock_pins_every_python_dependency() -> None:
    lock = (HOUSE / "requirements.lock").read_text()
    pinned = {_bare(line) for line in lock.splitlines() if "==" in line}
    assert _python_dependencies(locked=True) <= pinned


def test_the_lock_names_no_host() -> None:
    assert "://" not in (HOUSE / "requirements.lock").read_text()


def test_every_dependency_has_its_reason() -> None:
    explained = set(re.findall(r"^\| `([^`]+)`", (HOUSE / "docs/dependencies.md").read_text(), re.MULTILINE))
    used = _python_dependencies() | _rust_dependencies()
    assert {"without a reason": used - explained, "no longer used": explained - used} == {
        "without a reason": set(),
        "no longer used": set(),
    }


def test_links_between_documents_lead_somewhere() -> None:
    pages = [*HOUSE.glob("*.md"), *HOUSE.glob("docs/**/*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#\s]+)", page.read_text())]
    inner = [(page, link) for page, link in links if "://" not in link]
    assert [f"{page.name}: {link}" for page, link in inner if not (page.parent / link).exists()] == []


def test_documents_name_only_targets_that_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (HOUSE / "Makefile").read_text(), re.MULTILINE))
    pages = [*HOUSE.glob("*.md"), *HOUSE.glob("docs/**/*.md")]
    named = {
        name
        for page in pages
        for name in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    }
    assert named <= targets


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(path.name[:4]) for path in sorted((HOUSE / "docs/decisions").glob("*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


# Words that a stranger could not know; docs/glossary.md has those that stand.
_BANNED = """
bell contest door doors entrant estate farewell guest herald lap laps lesson lobby lots luggage mail owe owed
parcel parcels pilot porch postbox referee rehearsal road spoil straight teach unite unsaid vigil whereabouts
wish wishes
"""
BANNED = set(_BANNED.split())
# Words that mean several things in the field, or that meant several here, and the folders of python/tweed (or
# files in it, or bench) in which they may stand in a defined name, alone or with others, in the plural too.
# A folder is struck out when its last such name is gone. None is added: another meaning has another word.
MEANINGS = {
    # How many values or bytes there are. The size of a vector is its `norm`.
    "length": "aggregate compress doctor elastic exchange hub report simulate systems torch train",
    # A process with a permanent id in an elastic run, or behind a hub; a rank of the engine's group.
    "member": """aggregate bench cli collective data doctor elastic exchange hooks hub links metrics report
        simulate systems testbed torch train workloads""",
    # How processes find each other is a `rendezvous`.
    "meeting": "elastic ray torch",
    # A number in a row, or a host and port. The context of training is a `Context`.
    "place": """aggregate bench collective compress data doctor elastic exchange files.py hooks hub
        integrations links metrics order ray recipes report rng.py simulate systems testbed torch train
        workloads""",
    # What `tweed plan` makes; a schedule to be; what faults are to come.
    "plan": "bench cli collective elastic exchange hub report simulate systems testbed torch train",
    # A copy of the model that may diverge. A hub's second process is its `standby`: cli, hub and train have
    # the word in what users write, `replicas=` and `replica_of=`.
    "replica": "cli compress exchange hub train",
    # Torch's: the part of a parameter that a process holds. A part of a task's data is a `partition`, one of
    # a straggler's code a `block` of samples; `run.shards()` and `ByShards` are users' names.
    "shard": "bench cadence data elastic exchange group hooks systems torch train",
    "standing": "elastic simulate workloads",
    # What an aggregator forms is an `Aggregation`; a member that hands models on is a `ModelSource`.
    "gathering": "metrics",
    "holder": "doctor testbed torch",
    # A rule has `accepted` what it gives weight; contributions that may be anything are `byzantine`.
    "believed": "integrations report",
    "doubt": "bench testbed",
    "hostile": "simulate systems",
}
_DEFINED_IN_RUST = re.compile(
    r"\b(?:fn|struct|enum|trait|type|mod|let|const|static)\s+(?:mut )?([A-Za-z_]\w*)"
)


def _defined(path: Path) -> set[str]:
    """The names that a file defines."""
    if path.suffix == ".rs":
        return set(_DEFINED_IN_RUST.findall(re.sub(r"//.*", "", path.read_text())))
    nodes = list(ast.walk(ast.parse(path.read_text())))
    definitions = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return definitions | stored | {node.arg for node in nodes if isinstance(node, ast.arg)}


def _words(name: str) -> set[str]:
    """The words in a name, and those without the s of a plural."""
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", name)}
    return words | {word.removesuffix("s") for word in words}


def test_names_are_the_fields_own() -> None:
    paths = [*HOUSE.glob("python/**/*.py"), *HOUSE.glob("bench/*.py"), *HOUSE.glob("crates/*/src/**/*.rs")]
    found = [
        f"{path.relative_to(HOUSE)}: {name}"
        for path in paths
        for name in {path.stem} | _defined(path)
        if _words(name) & BANNED
    ]
    assert found == []


def _folder(path: Path) -> str:
    """The folder of python/tweed that a file is in, or the file in it; "bench"."""
    first, *inner = path.relative_to(HOUSE).parts
    return inner[1] if first == "python" else first


def test_a_word_with_several_meanings_stands_only_where_it_is_listed() -> None:
    paths = [*HOUSE.glob("python/**/*.py"), *HOUSE.glob("bench/*.py")]
    standing = {
        (word, _folder(path)): f"{path.relative_to(HOUSE)}: {name}"
        for path in paths
        for name in {path.stem} | _defined(path)
        for word in _words(name) & set(MEANINGS)
    }
    listed = {(word, folder) for word, folders in MEANINGS.items() for folder in folders.split()}
    assert [text for pair, text in standing.items() if pair not in listed] == []
    assert listed - set(standing) == set(), "strike these out: nothing there has that name any more"


def test_docstrings_are_sentences() -> None:
    found = [f"{fault.place}: {fault.name} {fault.why}" for fault in docstrings.faults()]
    assert not found, "python -m tests.docstrings lists them"


#: What makes objects of bytes runs code that is in them: `tweed.exchange.encoding` reads what others wrote.
UNPICKLERS = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
_OBJECT_COLLECTIVES = re.compile(r"(all_gather|gather|broadcast|scatter|send|recv)_object(_list)?")
#: Who may, and why.
MAY_UNPICKLE = {
    "testbed/ranks.py": "a launcher and its own children, by pipes",
    "testbed/rank_process.py": "the other ends of these pipes",
}


def _unpickles(code: str) -> set[str]:
    """What in this code unpickles, or writes what only `torch.load` reads."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names if one.name.split(".")[0] in UNPICKLERS}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Attribute):
            found.add(f"{getattr(node.value, 'id', '')}.{node.attr}")
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            found.add(node.arg)
    return {name for name in found if _is_unpickler(name)}


def _is_unpickler(name: str) -> bool:
    first, _, last = name.rpartition(".")
    return (
        name in ("torch.load", "torch.save", "allow_pickle")
        or (first or last).split(".")[0] in UNPICKLERS
        or _OBJECT_COLLECTIVES.fullmatch(last) is not None
    )


def test_nothing_of_others_is_unpickled() -> None:
    package = HOUSE / "python/tweed"
    found = {str(path.relative_to(package)): _unpickles(path.read_text()) for path in package.rglob("*.py")}
    assert {path: names for path, names in found.items() if names and path not in MAY_UNPICKLE} == {}
    assert all(found[path] for path in MAY_UNPICKLE)


@pytest.mark.parametrize(
    "code",
    [
        *("import pickle", "import pickle as p", "from pickle import loads", "import multiprocessing, dill"),
        *("torch.load(path)", "torch.load(path, weights_only=True)", "from torch import load"),
        *("dist.all_gather_object(a, b)", "torch.distributed.broadcast_object_list(a)"),
        *("from torch.distributed import recv_object_list", "numpy.load(path, allow_pickle=True)"),
    ],
)
def test_all_that_unpickles_is_found(code: str) -> None:
    assert _unpickles(code)


def test_what_does_not_unpickle_is_not_found() -> None:
    assert not _unpickles("import json, torch; json.load(file); model.load(path); dist.all_gather(a, b)")
