"""Where the true tail stands among all others, and what is said of many such ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

HITS = (1, 3, 10)
DRAWN = 50
"""Tails of the sampled protocol, that of GraIL."""
COLUMNS = ("best", "worst", "sampled best", "sampled worst")

Scores = Callable[[list[np.ndarray]], Iterator[np.ndarray]]
"""Queries, int64 [B, 2] of head and relation each, to the scores of every entity [B, N]."""


def filtered_ranks(
    *,
    facts: np.ndarray,
    known: np.ndarray,
    entities: int,
    scores: Scores,
    queries: int,
    seed: int = 0,
) -> np.ndarray:
    """Ranks of the tails of `facts` [M, 3], int64 [M, 4]: from 1, other true tails left out.

    `known` [K, 3] are all true facts, in the same relations as `facts`. Of equal scores the best
    and the worst place are given, among all entities and among 50 drawn ones that aren't true.
    Each (head, relation) is asked once, `queries` at a time, so that memory doesn't grow with the
    facts.
    """
    pairs, of_pair = np.unique(facts[:, :2], axis=0, return_inverse=True)
    true_of = _grouped(known, pairs)
    asked = [pairs[begin : begin + queries] for begin in range(0, len(pairs), queries)]
    by_pair = np.argsort(of_pair.reshape(-1), kind="stable")
    starts = np.searchsorted(of_pair.reshape(-1)[by_pair], np.arange(len(pairs) + 1))
    ranks = np.empty((len(facts), len(COLUMNS)), np.int64)
    pair = 0
    for found in scores(asked):
        for row in found:
            candidate = np.ones(entities, np.bool_)
            candidate[true_of[pair]] = False
            others = row[candidate]
            for at in by_pair[starts[pair] : starts[pair + 1]]:
                own = row[facts[at, 2]]
                drawn = others
                if len(others):
                    random = np.random.default_rng((seed, *facts[at].tolist()))
                    drawn = others[random.integers(0, len(others), DRAWN)]
                ranks[at] = (*_places(others, own), *_places(drawn, own))
            pair += 1
    return ranks


def _places(others: np.ndarray, own: float) -> tuple[int, int]:
    """The best and the worst place of `own` among others; that of NaN is the last."""
    if np.isnan(own):
        return 1 + len(others), 1 + len(others)
    better, equal = int((others > own).sum()), int((others == own).sum())
    return 1 + better, 1 + better + equal


def _grouped(known: np.ndarray, pairs: np.ndarray) -> list[np.ndarray]:
    """The true tails of each pair of head and relation."""
    order = np.lexsort((known[:, 1], known[:, 0]))
    tails, rows = known[order, 2], known[order, :2]
    unique, begins = np.unique(rows, axis=0, return_index=True)
    ends = np.append(begins[1:], len(rows))
    place = {tuple(row): at for at, row in enumerate(unique.tolist())}
    nothing = np.zeros(0, np.int64)
    found = []
    for row in pairs.tolist():
        at = place.get(tuple(row))
        found.append(nothing if at is None else tails[begins[at] : ends[at]])
    return found


def rank_metrics(ranks: np.ndarray) -> dict[str, float]:
    """Means over queries [M, 4]; of equal scores the mean of best and worst place counts. The
    reciprocal rank is also given as if the true tail came first, or last, among its equals.
    """
    best, worst, drawn_best, drawn_worst = ranks.T.astype(np.float64)
    rank, drawn = (best + worst) / 2, (drawn_best + drawn_worst) / 2
    return {
        "mrr": float((1 / rank).mean()),
        "mean_rank": float(rank.mean()),
        **{f"hits@{k}": float((rank <= k).mean()) for k in HITS},
        f"hits@10_of_{DRAWN}": float((drawn <= 10).mean()),
        "mrr_optimistic": float((1 / best).mean()),
        "mrr_pessimistic": float((1 / worst).mean()),
    }
