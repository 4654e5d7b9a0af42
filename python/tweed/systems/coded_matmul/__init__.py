"""Speeding up distributed machine learning using codes (Lee, Lam, Pedarsani, Papailiopoulos, Ramchandran,
IEEE Trans. IT 64(3), 2018, arXiv 1512.02673): products of matrices that any k of n workers give.

Parts: real-valued codes in `data.coding.mds`; expected times, the best k by Lambert's W and the fit of the
model of delays in `data.coding.product_times`; products over `map_tasks` in `workloads.coded`.

The paper's claim: where running times have exponential tails, coded products are of order log n quicker than
uncoded ones. Here the model of delays is simulated, beside replication and speculation. What coding costs is
measured. Live workers sleep delays that the model draws.

contenders      what is compared
measured        what coding costs, and times by the model of delays
measured_live   products by live workers
report          goals and tables
"""

from __future__ import annotations

from tweed.data.coding.mds import POINTS
from tweed.report.notes import Notes
from tweed.systems import Headline, System
from tweed.systems.coded_matmul.contenders import CODES, LARGE, MUS, SMALL, THEORY
from tweed.systems.coded_matmul.measured import condition, costs, quickest_k, simulated, subsets
from tweed.systems.coded_matmul.measured_live import live
from tweed.systems.coded_matmul.report import study

#: Simulated products, and live ones.
TRIALS, PRODUCTS = 10_000, 200
#: Of the times of live products; each also has the next one, for copies.
SEEDS = (2, 4)


def experiment(notes: Notes, quick: bool) -> None:
    """Cost: forty minutes, most of them live workers that sleep; quick: fifteen seconds."""
    trials = 200 if quick else TRIALS
    for n, k in CODES[:1] if quick else CODES:
        for dtype in ("float64", "float32"):
            subsets(notes, n, k, dtype, most=0)
    for points in POINTS:
        condition(notes, *LARGE, points)
    subsets(notes, *LARGE, "float64", most=20 if quick else 1000)
    for n in (LARGE[0], SMALL):
        for mu in MUS[n]:
            simulated(notes, n, mu, trials)
            quickest_k(notes, n, mu, trials)
    costs(notes, *LARGE, repeats=3 if quick else 21)
    for seed in SEEDS[:1] if quick else SEEDS:
        for mu in (1.0,) if quick else THEORY:
            live(notes, SMALL, mu, 2 if quick else PRODUCTS, seed)


SYSTEM = System(
    "Coded products: any k of n workers are enough",
    "IEEE Trans. IT 64(3), 2018, arXiv 1512.02673",
    "CodedMatrix(matrix, n, k)",
    experiment,
    study,
    headline=Headline(
        "coded products are of order log n quicker, where times have exponential tails",
        "simulated, 100 workers: {} as quick as uncoded with decoding; 8 live ones: {}",
        (
            "100 workers, mu 1: 1.9× as quick as uncoded, with decoding",
            "8 live workers, mu 1: 0.95 of theory, 1.26 as quick as uncoded",
        ),
        "Many products of one large matrix on workers that straggle. Encoding pays after many of them.",
    ),
)
