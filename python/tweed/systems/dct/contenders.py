"""Sides and cuts, by the keys that notes have. Pure."""

from __future__ import annotations

from tweed.compress import Chain, Direct, ErrorFeedback, Quantise, Threshold, TopK
from tweed.exchange.stages import Cut
from tweed.recipes import dct
from tweed.strategy import Strategy

DENSE, DCT, PUBLISHED = "dense", "DCT", "DCT, life span 1,000"
EACH, NO_MEMORY = "top-k each step", "DCT, nothing fed back"
ONE, CUT, TENTH = "one machine", "DCT, two stages", "DCT, two stages, a tenth"
SAMPLES, WARM = "14 % of each sample, 4 bits", "the same, all of 47 batches first"
#: Stands for a life span where a controller holds the threshold.
HELD = -1
#: What each step sends is judged from this step on.
FROM_STEP = 10
#: The share of values that sides ask for.
ASKED = 0.01

WORKERS = 4
LIFE_SPANS = (1, 10, 100, 1000)
SIDES = {
    DENSE: Strategy(),
    DCT: dct(0.99),
    PUBLISHED: dct(0.99, 1000),
    EACH: Strategy(compress=ErrorFeedback(TopK(0.01))),
    NO_MEMORY: Strategy(compress=Direct(Threshold(0.01, per_tensor=False))),
}
#: The third lets twice as many activations through: as coded, still twenty times fewer bytes. The others
#: choose from each sample alone, more values in fewer bits; the last sends all of the first 47 batches.
CUTS = {
    ONE: None,
    CUT: Cut(Chain(Threshold(0.05, dense_below=0), Quantise(8, nearest=True)), Quantise(8), False),
    TENTH: Cut(Chain(Threshold(0.1, dense_below=0), Quantise(8, nearest=True)), Quantise(8), False),
    SAMPLES: Cut(),
    WARM: Cut(warm_up=47),
}
