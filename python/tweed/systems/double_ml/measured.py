"""Measurements of double machine learning as tasks: bits, coverage, times, bytes, and the peer's figures."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression

from tweed.exchange.encoding import packed
from tweed.report.notes import Notes
from tweed.systems.double_ml.contenders import FOLDS, LEARNERS, MODELS
from tweed.workloads.double_ml import IIVM, IRM, PLIV, PLR, Estimate, Sample
from tweed.workloads.double_ml.cross_fitting import Grain, MapTasks, Model, payloads_of, shared_of
from tweed.workloads.double_ml.fits import fit_folds
from tweed.workloads.double_ml.folds import Folds, draw_folds
from tweed.workloads.double_ml.simulated import THETA, simulated_sample
from tweed.workloads.tasks import map_tasks

#: The share of tasks whose process is killed, once; the seed of all folds and fits.
KILLED, SEED = 0.05, 1
GRAINS: tuple[Grain, ...] = ("fine", "coarse")
#: Fields of the models' learners: r a regressor, c a classifier.
KINDS = {"PLR": "rr", "PLIV": "rrr", "IRM": "rc", "IIVM": "rcc"}
_MODELS: Mapping[str, Callable[..., Model]] = {"PLR": PLR, "PLIV": PLIV, "IRM": IRM, "IIVM": IIVM}
_LEARNERS = {
    "linear": {"r": LinearRegression(), "c": LogisticRegression(C=10.0)},
    "forest": {
        "r": RandomForestRegressor(5, random_state=0),
        "c": RandomForestClassifier(5, random_state=0),
    },
}


@dataclass(frozen=True, slots=True)
class CaseStudy:
    """A case study, PLR with random forests of both nuisance functions, and how often it is timed."""

    units: int
    controls: int
    trees: int
    repetitions: int
    rounds: int

    def fit(self, tasks: MapTasks, grain: Grain = "fine") -> Estimate:
        """The estimate, by what runs tasks."""
        model, sample = self.model(), self.sample()
        options = {"folds": FOLDS, "repetitions": self.repetitions, "seed": SEED}
        return model.fit(sample, **options, grain=grain, tasks=tasks)

    def model(self) -> PLR:
        """The model; each of its fits draws."""
        forest = RandomForestRegressor(self.trees, min_samples_leaf=5, max_features=1 / 3)
        return PLR(forest, forest)

    def sample(self) -> Sample:
        """The simulated sample that it has."""
        return simulated_sample("PLR", self.units, SEED, self.controls)

    def folds(self) -> Folds:
        """The folds that `fit` draws."""
        return draw_folds(np.zeros(self.units, dtype=np.int64), FOLDS, self.repetitions, SEED)


def linear_model(name: str, learners: str = "linear") -> Model:
    """The model of this name with learners of one kind; none of them draws."""
    return _MODELS[name](*(_LEARNERS[learners][kind] for kind in KINDS[name]))


def in_turn(
    function: Callable[..., Any], payloads: Iterable[Any], *, shared: Any, taken: list[float] | None = None
) -> dict[int, Any]:
    """Runs tasks in this process, one after the other; `taken` gets the seconds of each."""
    results, times = {}, [] if taken is None else taken
    for task, payload in enumerate(payloads):
        began = time.perf_counter()
        results[task] = function(payload, shared)
        times.append(time.perf_counter() - began)
    return results


def with_kills(
    function: Callable[..., Any], payloads: Iterable[Any], *, shared: Any, workers: int, folder: Path
) -> dict[int, Any]:
    """`map_tasks` of `fit_folds`; `KILLED` of the tasks, drawn, lose their process just before they return.

    Args:
      folder: gets a file per process that was killed.
    """
    sent = list(payloads)
    for task in np.random.default_rng(SEED).permutation(len(sent))[: max(1, round(KILLED * len(sent)))]:
        sent[task] = {**sent[task], "marker": str(folder / str(task))}
    return map_tasks(fit_or_die, sent, shared=shared, workers=workers)


def fit_or_die(payload: dict[str, Any], shared: dict[str, Any]) -> Any:
    """`fit_folds`; the first process that runs a task with a marker ends when all of it is computed."""
    found = fit_folds(payload, shared)
    if marker := payload.get("marker"):
        with suppress(FileExistsError):
            Path(marker).touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
    return found


def bits(estimate: Estimate) -> dict[str, Any]:
    """Theta and its standard error, and a digest of them and of all scores and predictions."""
    arrays = (estimate.thetas, estimate.standard_errors, estimate.psi, *estimate.predictions.values())
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    return {"theta": estimate.theta, "standard_error": estimate.standard_error, "digest": digest[:16]}


def equality(notes: Notes, case: CaseStudy, workers: Sequence[int]) -> None:
    """The bits of theta, by grain, workers, and whether some are killed."""
    for grain, count, is_killed in product(GRAINS, workers, (False, True)):
        facts = {"kind": "bits", "grain": grain, "workers": count, "killed": is_killed}
        if notes.has(**facts):
            continue
        with TemporaryDirectory() as folder:
            run: Any = partial(with_kills, folder=Path(folder)) if is_killed else map_tasks
            found = case.fit(partial(run, workers=count), grain)
            notes.add({**facts, **bits(found), "deaths": len(os.listdir(folder))})


def coverage(notes: Notes, seeds: int, units: int) -> None:
    """How many of the intervals at 95 % hold theta, of a sample per seed from 0 on, by model."""
    if all(notes.has(kind="coverage", model=name) for name in MODELS):
        return
    notes.log(f"intervals of {seeds} samples, for each model")
    wanted = [(name, seed) for name in MODELS for seed in range(seeds)]
    found = map_tasks(interval, [{"model": name, "seed": seed} for name, seed in wanted], shared=units)
    for name in MODELS:
        ends = [found[task] for task, (model, _) in enumerate(wanted) if model == name]
        covered = sum(low <= THETA <= high for low, high in ends)
        widths = [high - low for low, high in ends]
        facts = {"samples": seeds, "units": units, "covered": covered, "width": float(np.median(widths))}
        notes.add({"kind": "coverage", "model": name, **facts})


def interval(payload: dict[str, Any], units: int) -> tuple[float, float]:
    """The interval at 95 % of a simulated sample, with linear learners."""
    name, seed = payload["model"], payload["seed"]
    sample = simulated_sample(name, units, seed)
    return linear_model(name).fit(sample, seed=seed, grain="coarse", tasks=in_turn).interval()


def timed(notes: Notes, case: CaseStudy, contenders: Sequence[str]) -> None:
    """Seconds of the case study by contender, in turns, each second round the other way round."""
    for number in range(case.rounds):
        for contender in contenders[:: -1 if number % 2 else 1]:
            if not notes.has(kind="timed", contender=contender, round=number):
                notes.log(f"round {number + 1} of {case.rounds}: {contender}")
                facts = {"contender": contender, "round": number, "slots": _slots(), "trees": case.trees}
                notes.add({"kind": "timed", **facts, **_timed(contender, case)})


def _slots() -> int:
    return len(os.sched_getaffinity(0))


def _timed(contender: str, case: CaseStudy) -> dict[str, Any]:
    taken: list[float] = []
    with TemporaryDirectory() as folder:
        killing = partial(with_kills, workers=_slots(), folder=Path(folder))
        tasks: dict[str, Any] = {"loop": partial(in_turn, taken=taken), "killed": killing}
        theirs = package("PLR", case.model(), case.sample(), case.folds()) if contender == "package" else None
        began = time.perf_counter()
        if theirs is None:
            grain: Grain = "coarse" if contender == "coarse" else "fine"
            found = bits(case.fit(tasks.get(contender, map_tasks), grain))
        else:
            theirs.fit(n_jobs_cv=_slots())  # its processes are joblib's, which stay for the next round
            found = {"theta": float(theirs.coef[0]), "standard_error": float(theirs.se[0]), "digest": None}
        seconds = time.perf_counter() - began
        return {"seconds": seconds, **found, "deaths": len(os.listdir(folder)), "tasks_s": taken}


def package(name: str, model: Model, sample: Sample, folds: Folds) -> Any:
    """The DoubleML package's model with the same learners, sample and folds: `fit` is still to be called."""
    import doubleml

    learners = [getattr(model, field) for field in LEARNERS[name]]
    data = doubleml.DoubleMLData.from_arrays(sample.x, sample.y, sample.d, sample.z)
    theirs = getattr(doubleml, f"DoubleML{name}")(data, *learners, draw_sample_splitting=False)
    units = range(int(folds.max()) + 1)
    theirs.set_sample_splitting(
        [[(np.flatnonzero(row != fold), np.flatnonzero(row == fold)) for fold in units] for row in folds]
    )
    return theirs


def has_package() -> bool:
    """Whether the DoubleML package is installed, which is no dependency."""
    return importlib.util.find_spec("doubleml") is not None


def agreement(notes: Notes, models: Sequence[str]) -> None:
    """How far thetas, standard errors and scores are from the package's: the largest difference, by model."""
    for name, learners in product(models, _LEARNERS):
        if notes.has(kind="agreement", model=name, learners=learners):
            continue
        model, sample = linear_model(name, learners), simulated_sample(name, 300, seed=5)
        ours = model.fit(sample, folds=4, repetitions=3, tasks=in_turn)
        theirs = package(name, model, sample, ours.folds)
        with warnings.catch_warnings(action="ignore"):  # they are of its own learners' predictions
            theirs.fit()
        pairs = (
            (ours.thetas, theirs.all_coef[0]),
            (ours.standard_errors, theirs.all_se[0]),
            (ours.psi.T, theirs.psi[:, :, 0]),
        )
        off = max(float(np.abs(mine - other).max()) for mine, other in pairs)
        notes.add({"kind": "agreement", "model": name, "learners": learners, "off": off})


def payloads(notes: Notes, case: CaseStudy) -> None:
    """Bytes of tasks beside those of lists of ids in JSON, by grain; how often workers got what is shared."""
    for grain in GRAINS:
        if notes.has(kind="payload", grain=grain):
            continue
        folds = case.folds()
        made = payloads_of(2, folds, SEED, grain)
        rows = [folds[each["repetition"]] == fold for each in made for fold in each["folds"]]
        shared = shared_of(case.model(), case.sample())
        seen = map_tasks(is_first, made, shared={**shared, "first": True}).values()
        facts = {"tasks": len(made), "bytes": sum(len(packed(each, classes=())) for each in made)}
        facts |= {"training_ids_bytes": sum(ids_bytes(~row) for row in rows)}
        facts |= {"test_ids_bytes": sum(ids_bytes(row) for row in rows)}
        facts |= {"shared_bytes": len(packed(shared, classes=())), "copies": sum(first for first, _ in seen)}
        facts |= {"processes": len({process for _, process in seen})}
        notes.add({"kind": "payload", "grain": grain, **facts})


def is_first(payload: dict[str, Any], shared: dict[str, Any]) -> tuple[bool, int]:
    """Whether no task saw this copy of what is shared before; and which process it is."""
    return bool(shared.pop("first", False)), os.getpid()


def ids_bytes(units: Any) -> int:
    """How long a set of units, `[n]` bool, is as a list of ids in JSON."""
    return len(json.dumps(np.flatnonzero(units).tolist(), separators=(",", ":")))
