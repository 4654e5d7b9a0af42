"""Every code block of the README and of docs/ runs, is parsed, or has its reason."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from importlib.util import find_spec
from itertools import dropwhile
from pathlib import Path

import pytest
import typer

from tests.blocks import ROOT, Block, blocks, run_all, unknown
from tweed.cli import app
from tweed.collective import topology
from tweed.testbed import run_ranks

RANKS = 5
#: Python blocks that are looked into only, by a part of their text: why, and the names that readers define.
NOT_RUN = {
    'init_process_group("tweed")\nmodel': ("tests/test_readme.py runs it", ""),
    "pg_options=tweed.torch.Options(deadline=5)": ("there is a group already", ""),
    "pg_options=Options(plan=": ("a group of hosts of which some are lost; tests/plan runs it", "plan"),
    "_get_reconfigure_handle()": (
        "makes the default group; tests/torch/test_reconfigure.py runs it",
        "store size handles",
    ),
    "with FaultInjector(plan": (
        "members are killed; tests/testbed/test_faults.py runs it",
        "training pid bed folder ready step",
    ),
    "    run.serve(steps)": (
        "the workers' part is the loop around it; tests/torch/test_server.py runs both",
        "",
    ),
    "elastic=Elastic(2, 8)": (
        "members come and go; tests/elastic/test_training.py runs it",
        "dataset schedule DistributedDataParallel",
    ),
    "elastic=Elastic(1, 8))  # at all": (
        "sharded members; tests/elastic/test_sharded_member.py runs it",
        "fully_shard",
    ),
    "closure = run.closure(": ("members; tests/elastic/test_closures.py runs it", "run batch dataset"),
    "Elastic(1, 8, witnesses=": ("a witness is a process; tests/elastic runs it", ""),
    "checkpoints=Checkpoints(": ("as above", "control sampler keep folder"),
    "strategy=TweedStrategy()": ("tests/integrations runs it", "Trainer"),
    "accelerator = Accelerator()": ("tests/integrations runs it", "Accelerator"),
    "TweedStrategy(Krum(": ("make flower runs it", "FedAvg ArrayRecord grid"),
    "TrainingArguments(": ("tests/integrations runs it", "Trainer TrainingArguments data"),
    "tweed.ray.put(": ("needs processes that Ray has placed; tests/ray runs it", "refs"),
    "TorchTrainer(": ("needs Ray; tests/ray runs it", "train"),
    "register_collective_backend()": ("needs Ray; tests/ray runs it", "array"),
    "register_tensor_transport()": ("needs Ray; tests/ray runs it", "Learner workers"),
    "RayWorkers(": ("needs Ray; tests/ray runs it", ""),
    "ray_cluster(bed)": ("needs Ray in a testbed; tests/ray runs it", ""),
    "run = tweed.serve(": ("a hub for members of other hosts; tests/hub runs it", ""),
    'hub="KEY@host:7070"': ("a member of a hub on another host; tests/hub runs it", ""),
    "hub=address, aggregator=True": ("as above", "address strategy"),
    "import map_tasks": ("other ranks would wait for its fork server; tests/workloads runs it", ""),
    "import CodedProducts, coded_matmul": ("as above", ""),
    "lagrange_of(": ("needs encoded shards; tests/data runs it", "run shards_x shards_y"),
    "bed.change(": ("needs a testbed, as root; tests/testbed runs it", "fn"),
    "bed.carried()": ("needs a testbed, as root; tests/testbed runs it", "fn"),
}
#: What a shell block may begin with besides `tweed`, `python -m`, `cargo run` and `make`.
OTHER_COMMANDS = {"pip", "torchrun", "openssl", "chmod", "scp", "sudo", "export", "kill"}
WrongUse = typer.BadParameter.__bases__[0]
FOUND = blocks()
PYTHON = [block for block in FOUND if block.language == "python"]


def reason(block: Block) -> str | None:
    return next((part for part in NOT_RUN if part in block.text), None)


TO_RUN = [block for block in PYTHON if reason(block) is None]


def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One test for all: starting ranks is what costs."""
    monkeypatch.setenv("TWEED_DEADLINE", "10")  # where ranks go apart, the block fails, and not the whole
    by_rank = run_ranks(run_all, RANKS, TO_RUN, str(tmp_path), backend="tweed")
    told = {block.where: set(told) - {""} for block, *told in zip(TO_RUN, *by_rank, strict=True)}
    wrong = {where: texts for where, texts in told.items() if texts}
    assert not wrong, "\n".join(f"{where}:\n{text}" for where, texts in wrong.items() for text in texts)


@pytest.mark.parametrize("block", [block for block in PYTHON if reason(block)], ids=lambda block: block.where)
def test_a_python_block_that_is_not_run_names_only_what_is_there(block: Block) -> None:
    assert unknown(block.text, NOT_RUN[reason(block) or ""][1].split()) == []


def test_each_reason_is_that_of_a_block_and_most_blocks_run() -> None:
    assert set(NOT_RUN) == {reason(block) for block in PYTHON} - {None}
    assert len(TO_RUN) >= 20


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("tweed.attach(model, optimiser)", "optimiser"),
        ("from tweed.attach import detached", "cannot import name 'detached'"),
        ("tweed.torch.Options(deadlines=5)", "unexpected keyword argument 'deadlines'"),
        ("tweed.attached(model)", "no attribute 'attached'"),
    ],
)
def test_what_is_not_there_is_found(text: str, wrong: str) -> None:
    assert wrong in " ".join(unknown(text))


# --- Command lines.


def lines(block: Block) -> list[list[str]]:
    """The commands of a shell block, in words, each without the variables that it sets."""
    commands = [part for line in block.text.splitlines() for part in line.split("#")[0].split(" && ")]
    words = [shlex.split(command) for command in commands if command.strip()]
    return [list(dropwhile(re.compile(r"[A-Z_]+=").match, one)) for one in words]


def parse(words: list[str]) -> None:
    """Hands what follows `tweed` to its parser, which runs nothing."""
    command = typer.main.get_command(app)
    context = command.make_context("tweed", list(words))
    while isinstance(command, typer.core.TyperGroup):
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None and name is not None
        command, context = found, found.make_context(name, rest, parent=context)


@pytest.mark.parametrize(
    "block", [block for block in FOUND if block.language in ("sh", "")], ids=lambda block: block.where
)
def test_a_command_line_has_options_that_are_there(block: Block) -> None:
    for words in lines(block):
        if "tweed" in words and words[0] != "torchrun":
            parse(words[words.index("tweed") + 1 :])
        elif words[:2] == ["python", "-m"]:
            assert find_spec(words[2]), words
        elif words[:2] == ["cargo", "run"]:
            crate, example = words[words.index("-p") + 1], words[words.index("--example") + 1]
            assert (ROOT / f"crates/{crate.removeprefix('tweed-')}/examples/{example}.rs").exists(), words
        elif words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), words
        else:
            assert words[0] in OTHER_COMMANDS, words


@pytest.mark.parametrize("line", ["train --worker 4", "plans", "doctor --ranks many", "data fetches"])
def test_a_wrong_command_line_is_found(line: str) -> None:
    with pytest.raises(WrongUse):
        parse(line.split())


def test_no_fence_is_overlooked() -> None:
    found = Counter(block.page for block in blocks())
    assert {page: (ROOT / page).read_text().count("```") for page in found} == {
        page: 2 * count for page, count in found.items()
    }


def test_all_other_blocks_are_files_or_what_was_printed(tmp_path: Path) -> None:
    assert {block.language for block in FOUND} <= {"python", "sh", "json", "text", ""}
    for block in FOUND:
        if block.language == "json":
            (tmp_path / "file").write_text(json.dumps(json.loads(block.text)))
            topology.read(tmp_path / "file")
