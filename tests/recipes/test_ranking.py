"""Ranks are those of a ranking by brute force, in both protocols, ties and NaN included."""

import numpy as np
import pytest

from zoo.recipes.ranking import DRAWN, filtered_ranks, rank_metrics


def draw(*, entities=30, seed=0, levels=7):
    random = np.random.default_rng(seed)
    known = np.unique(random.integers(0, (entities, 3, entities), (150, 3)), axis=0)
    facts = known[random.permutation(len(known))[:40]]
    # few levels: many scores are equal
    table = random.integers(0, levels, (entities, 3, entities)).astype(np.float64)
    return facts, known, table


def ranks_of(facts, known, table, *, queries=8, seen=None):
    def scores(asked):
        for pairs in asked:
            if seen is not None:
                seen.extend(map(tuple, pairs.tolist()))
            yield table[pairs[:, 0], pairs[:, 1]]

    return filtered_ranks(
        facts=facts, known=known, entities=len(table), scores=scores, queries=queries
    )


def by_brute_force(facts, known, table):
    true = {tuple(row) for row in known.tolist()}
    found = []
    for h, r, t in facts.tolist():
        others = [e for e in range(len(table)) if (h, r, e) not in true]
        own = table[h, r, t]
        better = sum(table[h, r, e] > own for e in others)
        equal = sum(table[h, r, e] == own for e in others)
        found.append((1 + better, 1 + better + equal))
    return np.array(found)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("queries", [1, 8, 1000])
def test_filtered_ranks(seed, queries):
    facts, known, table = draw(seed=seed)
    seen = []
    found = ranks_of(facts, known, table, queries=queries, seen=seen)
    assert found[:, :2].tolist() == by_brute_force(facts, known, table).tolist()
    # each question is asked once
    assert sorted(seen) == sorted({tuple(row) for row in facts[:, :2].tolist()})


def test_the_sampled_protocol():
    facts, known, table = draw(levels=10**6)
    found = ranks_of(facts, known, table)
    true = {tuple(row) for row in known.tolist()}
    assert ((found[:, 2] >= 1) & (found[:, 3] <= DRAWN + 1)).all()
    for (h, r, t), (best, _, drawn_best, drawn_worst) in zip(
        facts.tolist(), found.tolist(), strict=True
    ):
        others = np.array([e for e in range(len(table)) if (h, r, e) not in true])
        chosen = others[np.random.default_rng((0, h, r, t)).integers(0, len(others), DRAWN)]
        better = int((table[h, r, chosen] > table[h, r, t]).sum())
        assert drawn_best == 1 + better
        assert (drawn_best == 1) or best > 1
        assert drawn_worst >= drawn_best
    again = ranks_of(facts, known, table, queries=3)
    assert np.array_equal(found, again)


def test_a_constant_score_is_no_luck():
    facts, known, table = draw()
    found = ranks_of(facts, known, np.zeros_like(table))
    metrics = rank_metrics(found)
    assert metrics["mrr_optimistic"] == 1 and metrics["hits@1"] < 0.05
    assert metrics["mrr_pessimistic"] < metrics["mrr"] < 0.1


def test_nan_is_last():
    facts, known, table = draw()
    h, r, t = facts[0]
    table[h, r, t] = np.nan
    found = ranks_of(facts[:1], known, table)
    candidates = len(table) - int(((known[:, 0] == h) & (known[:, 1] == r)).sum())
    assert found[0, :2].tolist() == [candidates + 1, candidates + 1]


def test_metrics():
    ranks = np.array([[1, 1, 1, 1], [2, 4, 1, 3], [20, 20, 11, 11]])
    found = rank_metrics(ranks)
    assert found["mrr"] == pytest.approx((1 + 1 / 3 + 1 / 20) / 3)
    assert found["mean_rank"] == pytest.approx((1 + 3 + 20) / 3)
    assert found["hits@1"] == pytest.approx(1 / 3) and found["hits@3"] == pytest.approx(2 / 3)
    assert found["hits@10_of_50"] == pytest.approx(2 / 3)
    assert found["mrr_optimistic"] == pytest.approx((1 + 1 / 2 + 1 / 20) / 3)
