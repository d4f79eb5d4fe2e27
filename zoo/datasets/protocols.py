"""The ways to split a person's own table, by name; the same molecule is never in two parts."""

from __future__ import annotations

import heapq
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from zoo.chem.molecule import shorten
from zoo.datasets.splits import in_turn, scaffold_split, split_digest
from zoo.errors import RequestError, unknown

Protocol = Literal["random", "scaffold", "scaffold-balanced", "column", "kfold"]
FoldsBy = Literal["random", "scaffold"]

PARTS = ("train", "valid", "test")
FEWEST = 20
"""Rows that a split takes at least: of fewer, a tenth says nothing."""
_TRAIN, _VALID, _TEST = range(3)
_WORDS = {
    **dict.fromkeys(("train", "training"), _TRAIN),
    **dict.fromkeys(("valid", "val", "validation"), _VALID),
    **dict.fromkeys(("test", "testing"), _TEST),
}


def make_split(
    *,
    protocol: str,
    seed: int,
    count: int,
    groups: np.ndarray,
    scaffolds: np.ndarray | None = None,
    shares: Sequence[float] = (0.8, 0.1, 0.1),
    column: Sequence[str] | None = None,
    rows: np.ndarray | None = None,
    folds: int = 5,
    fold: int = 0,
    by: str = "random",
    y: np.ndarray | None = None,
    names: Sequence[str] = (),
) -> tuple[dict[str, np.ndarray], str]:
    """Split `count` rows into train, valid and test: (sorted int64 indices of each, their sha256).

    Rows of one group (`groups` int [count], the same number for the same molecule) stay together.

    - random: groups drawn by `seed`. With a single binary label, each part gets both classes if
      there are enough of them.
    - scaffold: OGB's, from the largest scaffold to the smallest; `scaffolds` int [count]. No seed.
    - scaffold-balanced: scaffolds in an order drawn by `seed`, after those that would fill more
      than half of valid or of test, which come first and so are trained on.
    - column: `column` says train, valid (val, validation) or test. Without any valid row some are
      drawn from train. A molecule in several parts is in the first of them; that warns.
    - kfold: `folds` parts of equal size, of groups or, `by` "scaffold", of scaffolds; number `fold`
      is test, the next one valid, the others train.

    y float64 [count, labels], with NaN, and their `names` are for warnings of a part that has no
    known value of a label, or one class only; `rows` int [count] is what messages call the rows.
    RequestError: unknown protocol, wrong shares or folds, too few rows, a part without rows.
    """
    if protocol not in get_args(Protocol):
        raise unknown(kind="split", name=protocol, known=get_args(Protocol))
    if count < FEWEST:
        raise RequestError(f"{count} rows are too few to split: at least {FEWEST} are needed")
    if len(shares) != 3 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise RequestError(f"shares are of train, valid and test and add up to 1, not {shares}")
    generator = np.random.Generator(np.random.PCG64(seed))
    if scaffolds is None and (protocol.startswith("scaffold") or by == "scaffold"):
        raise RequestError(f"a split by scaffold needs the scaffolds: {protocol}")
    if protocol == "random":
        part = _random(generator, groups, shares, y=y)
    elif protocol == "scaffold":
        assert scaffolds is not None
        found = scaffold_split(
            scaffolds=scaffolds.tolist(), shares=dict(zip(PARTS, shares, strict=True))
        )
        part = np.empty(count, np.int64)
        for number, name in enumerate(PARTS):
            part[found[name]] = number
    elif protocol == "scaffold-balanced":
        assert scaffolds is not None
        part = _balanced(generator, scaffolds, shares)
    elif protocol == "column":
        part = _column(generator, column, groups, shares, rows=rows)
    else:
        if by not in get_args(FoldsBy):
            raise unknown(kind="way to make folds", name=by, known=get_args(FoldsBy))
        sets = groups if by == "random" or scaffolds is None else scaffolds
        part = _kfold(generator, sets, folds=folds, fold=fold)
    parts = {name: np.flatnonzero(part == number) for number, name in enumerate(PARTS)}
    if empty := [name for name in PARTS if not len(parts[name])]:
        raise RequestError(
            f"the split {protocol!r} of {count} rows leaves nothing for {' and '.join(empty)}\n"
            "use another split, such as random, or larger shares"
        )
    if y is not None:
        _warn_of_gaps(parts, y, names=names or [f"label {at}" for at in range(y.shape[1])])
    return parts, split_digest(parts)


def _sets(keys: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(which set each row is of, the sets' sizes) of rows with equal keys."""
    _, of, sizes = np.unique(keys, return_inverse=True, return_counts=True)
    return of, sizes


def _draw(
    generator: np.random.Generator, sizes: NDArray[Any], shares: Sequence[float]
) -> NDArray[np.int64]:
    """The part of each set: test and valid take sets in random order while they have room, so that
    a set too large for them is trained on.
    """
    count = int(sizes.sum())
    room = {part: max(1, round(shares[part] * count)) for part in (_TEST, _VALID) if shares[part]}
    part = np.full(len(sizes), _TRAIN)
    for number in generator.permutation(len(sizes)).tolist():
        size = int(sizes[number])
        for name in room:
            if size <= room[name]:
                room[name] -= size
                part[number] = name
                break
        if not any(room.values()):
            break
    return part


def _random(
    generator: np.random.Generator,
    groups: NDArray[Any],
    shares: Sequence[float],
    *,
    y: NDArray[Any] | None,
) -> NDArray[np.int64]:
    of, sizes = _sets(groups)
    part = _draw(generator, sizes, shares)
    if y is None or y.shape[1] != 1 or not _binary(y[:, 0]):
        return part[of]
    if all(_binary(y[part[of] == number, 0]) for number in range(3)):
        return part[of]
    # A rare class is missing somewhere: draw from the sets that hold it and from the others.
    rare = float(np.nanmean(y[:, 0]) < 0.5)
    with_rare = np.zeros(len(sizes), bool)
    np.logical_or.at(with_rare, of, y[:, 0] == rare)
    for some in (with_rare, ~with_rare):
        part[some] = _draw(generator, sizes[some], shares)
    return part[of]


def _balanced(
    generator: np.random.Generator, scaffolds: NDArray[Any], shares: Sequence[float]
) -> NDArray[np.int64]:
    of, sizes = _sets(scaffolds)
    order = generator.permutation(len(sizes))
    half = min(shares[_VALID], shares[_TEST]) * len(scaffolds) / 2
    order = order[np.argsort(sizes[order] <= half, kind="stable")]
    part = np.empty(len(sizes), np.int64)
    part[order] = in_turn(sizes=sizes[order].tolist(), count=len(scaffolds), shares=shares)
    return part[of]


def _column(
    generator: np.random.Generator,
    column: Sequence[str] | None,
    groups: NDArray[Any],
    shares: Sequence[float],
    *,
    rows: NDArray[Any] | None,
) -> NDArray[np.int64]:
    if column is None:
        raise RequestError("the split 'column' needs a column that says train, valid or test")
    number = {text: _WORDS.get(text.strip().casefold(), -1) for text in set(column)}
    part = np.array([number[text] for text in column], np.int64)
    if (part < 0).any():
        bad = np.flatnonzero(part < 0)
        named = bad if rows is None else rows[bad]
        shown = ", ".join(
            f"{shorten(column[at], to=40)!r} (row {row})"
            for at, row in zip(bad[:3].tolist(), named[:3].tolist(), strict=True)
        )
        raise RequestError(
            f"{len(bad):,} rows of the split column hold neither train, valid nor test: {shown}"
            f"{', ...' if len(bad) > 3 else ''}"
        )
    of, sizes = _sets(groups)
    first = np.full(len(sizes), _TEST)
    np.minimum.at(first, of, part)
    if moved := int((first[of] != part).sum()):
        warnings.warn(
            f"{moved:,} rows of the split column hold molecules that an earlier part holds too, "
            "and are moved there",
            stacklevel=3,
        )
    if not (first == _VALID).any():
        train = first == _TRAIN
        drawn = _draw(
            generator, sizes[train], (shares[_TRAIN], shares[_VALID] / sum(shares[:2]), 0.0)
        )
        first[train] = np.where(drawn == _VALID, _VALID, _TRAIN)
        warnings.warn(
            f"the split column names no valid rows: {int(sizes[first == _VALID].sum()):,} of train "
            "are taken for them",
            stacklevel=3,
        )
    return first[of]


def _kfold(
    generator: np.random.Generator, keys: NDArray[Any], *, folds: int, fold: int
) -> NDArray[np.int64]:
    of, sizes = _sets(keys)
    if not 3 <= folds <= len(sizes):
        raise RequestError(f"folds are 3 to {len(sizes)} here, not {folds}")
    if not 0 <= fold < folds:
        raise RequestError(f"fold is 0 to {folds - 1}, not {fold}")
    order = generator.permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    # The largest first, each into the fold that holds least.
    held = [(0, number) for number in range(folds)]
    of_fold = np.empty(len(sizes), np.int64)
    for at in order.tolist():
        rows, number = held[0]
        of_fold[at] = number
        heapq.heapreplace(held, (rows + int(sizes[at]), number))
    part = np.full(folds, _TRAIN)
    part[fold], part[(fold + 1) % folds] = _TEST, _VALID
    of_set: NDArray[np.int64] = part[of_fold]
    return of_set[of]


def _known(values: NDArray[Any]) -> NDArray[np.int64]:
    known: NDArray[np.int64] = values[~np.isnan(values)]
    return known


def _binary(values: NDArray[Any]) -> bool:
    return set(np.unique(_known(values)).tolist()) == {0.0, 1.0}


def _warn_of_gaps(
    parts: Mapping[str, NDArray[Any]], y: NDArray[Any], *, names: Sequence[str]
) -> None:
    gaps = []
    for at, label in enumerate(names):
        binary = _binary(y[:, at])
        for name, rows in parts.items():
            known = np.unique(_known(y[rows, at]))
            if not len(known):
                gaps.append(f"{name} has no known {label}")
            elif binary and len(known) == 1:
                gaps.append(f"{name} has no {'negative' if known[0] else 'positive'} {label}")
    if gaps:
        more = f"; and {len(gaps) - 5} more" if len(gaps) > 5 else ""
        warnings.warn(f"this split leaves gaps: {'; '.join(gaps[:5])}{more}", stacklevel=3)
