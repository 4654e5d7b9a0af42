"""Members that train while something befalls them. Without pytest, as each rank imports it."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from tests.elastic.members import among, kill_me
from tests.elastic.trains import KILLED_AT, STEPS, Trainee, last_step, sampler
from tests.faults.ring import logs_here
from tweed.elastic import Checkpoints, Elastic, ElasticRun, join, start
from tweed.elastic import state_to_joiner as transfer
from tweed.errors import Evicted, PeerLost, TweedError
from tweed.testbed import say
from tweed.train.folder import latest


class Outcome(NamedTuple):
    """Of a member that has trained to the end."""

    digest: str
    params: Tensor
    steps_done: int
    epochs: list[int]


def ended(run: ElasticRun, trainee: Trainee) -> Outcome:
    run.finish()
    return Outcome(trainee.digest, trainee.params.detach(), run.steps_done, run.epochs)


def waits(rank: int, size: int, port: int, witness: str) -> Outcome:
    """There must be three members, and two kill themselves; whoever is started again joins."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    is_founder = store.add(f"lives of {rank}", 1) == 1
    elastic = Elastic(3, size, witnesses=(witness,))
    logs_here()
    control, trainee = among(store, rank, size if is_founder else 0, elastic), Trainee()
    run = ElasticRun(control, sampler(), trainee.keep, timeout_s=60)
    while run.steps_done < STEPS:
        dies = is_founder and rank >= 2 and run.steps_done == KILLED_AT
        trainee.step(run, kill_me if dies else lambda: None)
    found = ended(run, trainee)
    control.close()
    return found


def copies(rank: int, size: int, port: int) -> Outcome:
    """The last rank joins, and its copy takes two seconds. A donor that has given a part of it says so."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    control = among(store, rank, size - 1, Elastic(1, size, joiner_mbit=1.5))
    trainee, has_said = Trainee(), False
    numbers = torch.rand(250_000, generator=torch.Generator().manual_seed(1))
    ballast = torch.nn.ParameterList([torch.nn.Parameter(numbers, requires_grad=False)])
    keep = trainee.keep | {"ballast": ballast}
    run, last = ElasticRun(control, sampler(), keep, check_every=20), None
    while last is None or run.steps_done < last:
        trainee.step(run, lambda: time.sleep(0.005))
        donors = control._transfers._donors.values()
        if not has_said and any(0 < donor.acknowledged < donor.state_bytes for donor in donors):
            say("gives")
            has_said = True
        if rank == size - 1 and run.members:
            store.set("it is in", "")
        if last is None and store.check(["it is in"]):
            last = last_step(store, run.steps_done)
    found = ended(run, trainee)
    control.close()
    return found


def too_slow(rank: int, size: int, port: int) -> Outcome | str:
    """The last rank joins by links that take less than the steps make."""
    transfer._KEPT_STATES, transfer._KEPT_BYTES = 1, 1 << 9  # else it would take some hundred megabytes
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    control, trainee = among(store, rank, size - 1, Elastic(1, size, joiner_mbit=0.002)), Trainee()
    if rank == size - 1:
        try:
            run = ElasticRun(control, sampler(), trainee.keep)
            while True:
                trainee.step(run)
        except PeerLost as error:
            store.set("refused", "")
            return str(error)
        finally:
            control.close()
    run, last = ElasticRun(control, sampler(), trainee.keep), None
    while last is None or run.steps_done < last:
        trainee.step(run, lambda: time.sleep(0.002))
        if last is None and store.check(["refused"]):
            last = last_step(store, run.steps_done)
    found = ended(run, trainee)
    control.close()
    return found


def twins(rank: int, size: int, port: int, key_files: list[str]) -> Outcome | str:
    """The last two ranks are one process that was started twice: they join with one key."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    founders, trainee = size - 2, Trainee()
    key_file = None if rank < founders else key_files[rank - founders]
    try:
        control = among(store, rank, founders, Elastic(1, size, key_file=key_file))
        run, last = ElasticRun(control, sampler(), trainee.keep, check_every=1), None
        while last is None or run.steps_done < last:
            trainee.step(run, lambda: time.sleep(0.002))
            if last is None and len(run.members) > founders and store.check(["one is out"]):
                last = last_step(store, run.steps_done)
        return ended(run, trainee)
    except TweedError as error:
        store.set("one is out", "")
        return f"{type(error).__name__}: {error}"


def parted(rank: int, size: int, folder: Path) -> tuple[str, Outcome | str]:
    """All train until they are told that it is over. With the key of each."""
    store = dist.FileStore(str(folder / "store"), size)
    control = start(store, rank, size, Elastic(1, size))
    run, trainee, last = ElasticRun(control, sampler(), timeout_s=60), Trainee(), None
    logs_here()
    told = 0
    try:
        while last is None or run.steps_done < last:
            trainee.step(run, lambda: time.sleep(0.002))
            if run.steps_done > KILLED_AT and run.epochs[-1] > told:
                told = run.epochs[-1]
                say(f"epoch {told}")
            if last is None and (folder / "over").exists():
                last = last_step(store, run.steps_done)
        return control.key, ended(run, trainee)
    except Evicted as error:
        return control.key, str(error)
    finally:
        control.close()


def comes_together(rank: int, size: int, folder: Path) -> Outcome:
    """All train until they are told that the network is whole, and some steps more when all are in again. Who
    was evicted meanwhile, as others heard each other before, joins."""
    store, elastic = dist.FileStore(str(folder / "store"), size), Elastic(1, size)
    control = among(store, rank, size, elastic)
    others = [store.get(f"address {other}").decode() for other in range(size) if other != rank]
    logs_here()
    while True:
        trainee = Trainee()
        run, last = ElasticRun(control, sampler(), trainee.keep, timeout_s=60), None
        try:
            while last is None or run.steps_done < last:
                trainee.step(run, lambda: time.sleep(0.002))
                if run.steps_done == KILLED_AT:
                    say("trains")
                hears_all = len(run.members) == size and control._node.standing()[0] == "settled"
                # Another one may have said which step is the last while this one does not hear all yet.
                whole = (hears_all and (folder / "whole").exists()) or store.check(["last step"])
                if last is None and whole:
                    last = last_step(store, run.steps_done)
            return ended(run, trainee)
        except Evicted:
            run.close()
        finally:
            control.close()
        control = join(",".join(others), elastic)


def stops_and_busy(rank: int, size: int, port: int) -> Outcome:
    """Steps of 10 ms, for some two seconds."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    control = start(store, rank, size, Elastic(1, size))
    run, trainee = ElasticRun(control, sampler()), Trainee()
    while run.steps_done < 3 * STEPS:
        trainee.step(run, lambda: time.sleep(0.01))
        if run.steps_done == KILLED_AT:
            say("trains")
    found = ended(run, trainee)
    control.close()
    return found


def on_a_full_disk(rank: int, size: int, port: int, folder: Path) -> tuple[Outcome, list[int]]:
    """From step 12 to 32 no file of rank 1 may grow. With which checkpoint counted then, and at the end."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    control, trainee = start(store, rank, size, Elastic(1, size)), Trainee()
    checkpoints, found = Checkpoints(folder, 5), []
    run = ElasticRun(control, sampler(), trainee.keep, checkpoints=checkpoints)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    logs_here()
    while run.steps_done < 40:
        trainee.step(run)
        if run.steps_done in (12, 32):
            checkpoints.wait()
            dist.barrier()
            found.append(latest(folder))
            dist.barrier()
            if rank == 1:
                most = 0 if run.steps_done == 12 else hard
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    outcome = ended(run, trainee)
    control.close()
    return outcome, [*found, latest(folder)]


def outlives(rank: int, size: int, port: int, witnesses: tuple[str, ...]) -> Outcome:
    """The last rank joins when it is told to, and goes on alone when the others kill themselves, as they are
    told."""
    store, joins = dist.TCPStore("127.0.0.1", port, is_master=False), rank == size - 1
    if joins:
        store.wait(["join"])
    control = among(store, rank, size - 1, Elastic(1, size, witnesses=() if joins else witnesses))
    trainee, has_been_in = Trainee(), False
    run = ElasticRun(control, sampler(), trainee.keep, timeout_s=60)
    while not (has_been_in and len(run.members) == 1):
        dies = not joins and store.check(["die"])
        trainee.step(run, kill_me if dies else lambda: time.sleep(0.002))
        if len(run.members) == size and not has_been_in:
            has_been_in = True
            store.add("in", 1)
    for _ in range(10):
        trainee.step(run)
    found = ended(run, trainee)
    control.close()
    return found
