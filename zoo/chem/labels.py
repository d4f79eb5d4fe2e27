"""A column of labels understood: numbers or classes, what is unknown, and what is neither."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from zoo.chem.columns import Column
from zoo.chem.molecule import shorten
from zoo.chem.units import trailing_unit
from zoo.errors import DataError, unknown

LabelKind = Literal["regression", "binary", "multiclass"]

MOST_CLASSES = 20
"""A column of more different texts than this is not taken for classes unless that is asked for."""

# In lower case.
_MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none", "-", "--", "?"}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_COMMA = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE)
# 1,234 may be either a decimal or a thousand; 0,234 and 1,23 may not.
_THOUSAND = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
# ">10", "ca. 5", "1.2 mM", "1-2": quantities, but no numbers.
_QUANTITY = re.compile(r"(ca\.?|about|[<>=~≤≥≈±])*\s*[+-]?\d", re.IGNORECASE)
_YES = {"1", "yes", "y", "true", "t", "positive", "pos", "+", "active", "toxic", "hit", "high"}
_NO = {"0", "no", "n", "false", "f", "negative", "neg", "inactive", "nontoxic", "miss", "low"}
_NOT = ("non-", "non ", "non", "not ", "not-", "in", "un", "im")


@dataclass(frozen=True, kw_only=True)
class Label:
    """What a column of labels is.

    classes: their texts, in the order of the numbers 0, 1, ...: (negative, positive) of a binary
    label; none of a regression
    unit: from the column's name where it ends in one, else ""
    known: rows with a label; counts: those of each class
    """

    name: str
    kind: LabelKind
    classes: tuple[str, ...] = ()
    unit: str = ""
    known: int = 0
    counts: tuple[int, ...] = ()

    @property
    def positives(self) -> int:
        """Rows of the positive class of a binary label; 0 of others."""
        return self.counts[1] if self.kind == "binary" and self.counts else 0

    def stated(self) -> str:
        """The label in a line, for people."""
        if self.kind == "regression":
            return f"{self.name}: regression, {self.known:,} known"
        parts = [
            f"{text!r}{' (positive)' if self.kind == 'binary' and at else ''} {count:,}"
            for at, (text, count) in enumerate(zip(self.classes, self.counts, strict=True))
        ]
        return f"{self.name}: {self.kind}, {self.known:,} known: {', '.join(parts)}"


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """A label with the value of each row: float64 [rows], NaN where it is unknown, else a number or
    a class's. `wrong` maps a code of the column to why its text is taken for unknown; `notes` say
    what was assumed.
    """

    label: Label
    values: np.ndarray
    wrong: Mapping[int, str]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Texts:
    """A column's texts by what they are: codes of numbers, of texts, and how often each occurs."""

    numbers: dict[int, float]
    others: dict[int, str]
    times: np.ndarray
    notes: list[str]

    def count(self, codes: Mapping[int, object]) -> int:
        return int(self.times[list(codes)].sum()) if codes else 0


def parse_label(name: str, column: Column, *, kind: str | None, where: str) -> Parsed:
    """Understand a column of labels; `kind` is inferred where it is None.

    Numbers are a regression, unless they are 0 and 1, or -1 and 1; two texts are binary, up to
    `MOST_CLASSES` multiclass. DataError: all unknown, neither numbers nor classes, or not of the
    `kind` that was asked for. RequestError: no such kind.
    """
    if kind is not None and kind not in get_args(LabelKind):
        raise unknown(kind=f"kind of label {name!r}:", name=kind, known=get_args(LabelKind))
    texts = _sorted_out(column)
    if not texts.numbers and not texts.others:
        raise DataError(f"the label column {name!r} of {where} is empty: no row has a value")
    chosen = kind or _kind(texts, name=name, where=where)
    if chosen == "regression":
        _check_numbers(texts, name=name, where=where)
        meaning: dict[int, float] = dict(texts.numbers)
        classes: tuple[str, ...] = ()
        if kind is None:
            _note_few(texts)
    else:
        meaning, classes = _classes(texts, name=name, asked=kind, where=where)
    by_code = np.full(len(column.texts) or 1, np.nan)
    by_code[list(meaning)] = list(meaning.values())
    number = "one of its classes" if classes else "a number"
    wrong = {
        code: _reason(text, number=number)
        for code, text in texts.others.items()
        if code not in meaning
    }
    for code in texts.numbers.keys() - meaning.keys():
        wrong[code] = "not one of its classes: taken as unknown"
    notes = [f"{name}: {note}" for note in texts.notes]
    if wrong:
        example = shorten(column.texts[next(iter(wrong))], to=40)
        notes.append(
            f"{name}: {texts.count(wrong):,} cells are not {number}, such as {example!r}: "
            "taken as unknown"
        )
    label = Label(name=name, kind=_as_kind(chosen), classes=classes, unit=trailing_unit(name))
    return Parsed(label=label, values=by_code[column.codes], wrong=wrong, notes=tuple(notes))


def _as_kind(text: str) -> LabelKind:
    return next(kind for kind in get_args(LabelKind) if kind == text)


def _sorted_out(column: Column) -> _Texts:
    numbers: dict[int, float] = {}
    commas: dict[int, str] = {}
    others: dict[int, str] = {}
    missing: dict[int, str] = {}
    points = False
    for code, raw in enumerate(column.texts):
        text = raw.strip().replace("−", "-")
        if text.casefold() in _MISSING:
            missing[code] = text
        elif _NUMBER.fullmatch(text):
            numbers[code] = float(text)
            points = points or "." in text
        elif _COMMA.fullmatch(text):
            commas[code] = text
        else:
            others[code] = raw.strip()
    times = np.bincount(column.codes, minlength=len(column.texts) or 1)
    texts = _Texts(numbers, others, times, [])
    # One that could only be a decimal vouches for the others, such as 1,234.
    decimal = any(not _THOUSAND.fullmatch(text) for text in commas.values())
    if commas and decimal and not points and not others:
        for code, text in commas.items():
            numbers[code] = float(text.replace(",", "."))
        texts.notes.append(f"numbers with a decimal comma, such as {next(iter(commas.values()))}")
    else:
        others.update(commas)
    huge = [code for code, value in numbers.items() if not np.isfinite(value)]
    others.update({code: column.texts[code].strip() for code in huge})
    for code in huge:
        del numbers[code]
    words = {code: text for code, text in missing.items() if text.casefold() == "none"}
    if words and not numbers:
        texts.notes.append(f"{texts.count(words):,} cells 'none' taken as unknown, not as a class")
    return texts


def _kind(texts: _Texts, *, name: str, where: str) -> str:
    if texts.numbers:
        values = set(texts.numbers.values())
        return "binary" if values in ({0.0, 1.0}, {-1.0, 1.0}) else "regression"
    different = {text.casefold() for text in texts.others.values()}
    quantities = sum(bool(_QUANTITY.match(text)) for text in different)
    if len(different) > MOST_CLASSES or quantities * 2 > len(different):
        _check_numbers(texts, name=name, where=where)
    return "multiclass" if len(different) > 2 else "binary"


def _check_numbers(texts: _Texts, *, name: str, where: str) -> None:
    """DataError unless most of what is known are numbers."""
    numbers, others = texts.count(texts.numbers), texts.count(texts.others)
    if numbers >= others:
        return
    samples = list(dict.fromkeys(shorten(text, to=40) for text in texts.others.values()))[:3]
    raise DataError(
        f"the label column {name!r} of {where} holds {numbers:,} numbers and {others:,} cells that "
        f"are none, such as {', '.join(map(repr, samples))}\n"
        "write plain numbers there, or 2 to "
        f"{MOST_CLASSES} classes (more with --kind, kinds={{{name!r}: 'multiclass'}})"
    )


def _note_few(texts: _Texts) -> None:
    values = set(texts.numbers.values())
    if 1 < len(values) <= MOST_CLASSES and all(value.is_integer() for value in values):
        texts.notes.append(
            f"whole numbers with {len(values)} different values, taken as a regression"
        )


def _classes(
    texts: _Texts, *, name: str, asked: str | None, where: str
) -> tuple[dict[int, float], tuple[str, ...]]:
    """(class of each code, the classes' texts)."""
    keys: dict[int, str | float] = {}
    if texts.count(texts.numbers) >= texts.count(texts.others):
        keys.update(texts.numbers)
    else:
        # The same text however it is written; numbers among texts are texts.
        keys.update({code: text.casefold() for code, text in texts.others.items()})
        keys.update({code: f"{value:g}" for code, value in texts.numbers.items()})
    shown: dict[str | float, str] = {}
    for code, key in sorted(keys.items(), key=lambda item: -texts.times[item[0]]):
        shown.setdefault(key, f"{key:g}" if isinstance(key, float) else texts.others.get(code, key))
    ordered = sorted(shown, key=lambda key: (key if isinstance(key, float) else 0.0, str(key)))
    if asked == "binary" and len(ordered) > 2:
        raise DataError(
            f"the label column {name!r} of {where} can't be binary: it holds {len(ordered)} "
            f"different values, such as {', '.join(repr(shown[key]) for key in ordered[:3])}"
        )
    if len(ordered) < 2:
        raise one_value(name, shown[ordered[0]], where=where)
    if len(ordered) == 2 and isinstance(ordered[0], str):
        ordered = _negative_first(str(ordered[0]), str(ordered[1]))
        texts.notes.append(f"{shown[ordered[1]]!r} is taken as the positive class")
    place = {key: float(at) for at, key in enumerate(ordered)}
    return {code: place[key] for code, key in keys.items()}, tuple(shown[key] for key in ordered)


def one_value(name: str, value: str, *, where: str) -> DataError:
    """The error for a label column that has the same value in every row."""
    return DataError(
        f"the label column {name!r} of {where} has one value only, {value!r}: "
        "there is nothing to learn from it\ngive another column, or rows with other values"
    )


def _negative_first(a: str, b: str) -> list[str | float]:
    """The two classes in the order (negative, positive); `a` before `b` where neither says so."""
    bare = {text: re.sub(r"[-\s]", "", text) for text in (a, b)}
    for negative, positive in ((a, b), (b, a)):
        if any(negative == prefix + positive for prefix in _NOT):
            return [negative, positive]
    for negative, positive in ((a, b), (b, a)):
        if bare[negative] in _NO or negative in _NO or positive in _YES:
            return [negative, positive]
    return [a, b]


def _reason(text: str, *, number: str) -> str:
    if _THOUSAND.fullmatch(text):
        return f"{text} could be a decimal or a thousand: taken as unknown"
    return f"not {number}: taken as unknown"


def known_counts(values: np.ndarray, *, classes: Sequence[str]) -> tuple[int, tuple[int, ...]]:
    """(values that are known, how many of each class) of float64 [rows]."""
    known = values[~np.isnan(values)]
    if not classes:
        return len(known), ()
    counts = np.bincount(known.astype(np.int64), minlength=len(classes))
    return len(known), tuple(counts.tolist())
