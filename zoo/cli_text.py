"""What the commands print for people."""

from __future__ import annotations

import contextlib
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zoo import registry

if TYPE_CHECKING:
    import pandas as pd


MANY = 30
"""Metrics of single properties that a person still reads."""


FEW = 4
"""Molecules that may stand side by side."""


def entries(names: Sequence[str]) -> list[dict[str, Any]]:
    """A row per entry and tag."""
    rows = []
    for name in names:
        entry, tag = registry.resolve(name)
        block = entry.tags[tag]
        rows.append(
            {
                "name": name,
                "weights": block.weights is not None,
                "measured": dict(block.measured),
                "summary": entry.summary,
                "default": tag == next(iter(entry.tags)),
            }
        )
    return rows


def listing(rows: Sequence[Mapping[str, Any]]) -> str:
    width = max(len(r["name"]) for r in rows)
    lines: list[str] = []
    last = ""
    for row in rows:
        if row["summary"] != last:
            last = row["summary"]
            lines += ["", last] if lines else [last]
        weights = "weights" if row["weights"] else "recipe "
        measured = ", ".join(f"{k} {v:.4g}" for k, v in row["measured"].items())
        default = f"= {row['name'].partition('.')[0]}" if row["default"] else ""
        lines.append(f"  {row['name']:<{width}}  {weights}  {measured} {default}".rstrip())
    return "\n".join(lines)


def card(card: registry.Card) -> str:
    """A card as a page."""
    data = card.dataset
    lines = [card.name, f"  {card.summary}", ""]
    rows = [
        ("predicts", _predicts(card)),
        ("model", f"{card.architecture}, recipe {card.task}, trained fastest by {card.backend}"),
        ("data", f"{data.title} ({data.licence})"),
        ("cite", data.citation),
        ("counts", ", ".join(f"{v:,} {k}" for k, v in data.counts.items())),
    ]
    if card.target:
        t = card.target
        rows.append(
            ("published", f"{t['metric']} {t['value']} {t.get('unit', '')} ({t['source']})")
        )
        rows.append(("protocol", str(t["protocol"])))
    measured = ", ".join(f"{k} {v:.4g}" for k, v in card.measured.items())
    rows.append(("measured", f"{measured} ({card.measured_on})" if measured else "not yet"))
    if card.weights:
        w = card.weights
        rows.append(("weights", f"{w.file}, {w.size / 1e6:.1f} MB, {w.licence}"))
        rows.append(("sha256", w.sha256))
        rows.append(("mirrors", ", ".join(w.mirrors) or "none: it comes with the package"))
    else:
        rows.append(("weights", "none yet: train them with `zoo run " + card.name + "`"))
    rows += [("note", limit) for limit in card.limits]
    return "\n".join(lines + _aligned(rows))


def _aligned(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(k) for k, _ in rows)
    room = max(40, min(shutil.get_terminal_size().columns, 110) - width - 4)
    lines = []
    for key, value in rows:
        first, *more = textwrap.wrap(value, room, break_on_hyphens=False) or [""]
        lines.append(f"  {key:<{width}}  {first}")
        lines += [f"  {'':<{width}}  {line}" for line in more]
    return lines


def fields(rows: Sequence[Mapping[str, Any]]) -> str:
    """A config, a line per field, with what it means below."""
    width = max(len(r["key"]) for r in rows)
    lines = []
    for row in rows:
        notes = [row["meaning"]]
        if row["allowed"]:
            notes.append(f"allowed: {row['allowed']}")
        if row["default"] is not None and row["default"] != row["value"]:
            notes.append(f"default: {row['default']}")
        lines.append(f"{row['key']:<{width}}  {row['value']}")
        lines.append(f"{'':<{width}}    {'; '.join(n for n in notes if n)}")
    return "\n".join(lines)


def result(result: Mapping[str, Any]) -> str:
    """The figures of a run or an evaluation."""
    units = result["units"]
    lines = []
    for split, metrics in result["metrics"].items():
        values = [
            f"{k} {v:.5g} {units.get(k, '')}".rstrip() for k, v in metrics.items() if "/" not in k
        ]
        each = [f"{k} {v:.3g}" for k, v in metrics.items() if "/" in k]
        lines.append(f"{result['entry']} {split}: " + ", ".join(values))
        if len(each) <= MANY:
            lines += textwrap.wrap(
                ", ".join(each), 100, initial_indent="  ", subsequent_indent="  "
            )
        else:
            lines.append(f"  and {len(each)} of single properties: --json has them all")
    speed = result.get("train_graphs_per_s")
    if speed:
        lines.append(f"{speed:,.0f} graphs/s in training, {result['wall_s']:,.0f} s in all")
    lines.append(f"weights: {result['checkpoint']}")
    return "\n".join(lines)


def finetuned(result: Mapping[str, Any]) -> str:
    """The comparison that a finetuned model ends with, and where things are."""
    name = result["judged_by"]
    unit = result["units"].get(name, "")
    width = max(len(line["name"]) for line in result["comparison"])
    lines = [f"{'':<{width}}  {name}{f' [{unit}]' if unit else ''}, 95 % interval"]
    for line in result["comparison"]:
        interval = f"{line['low']:.3f} to {line['high']:.3f}"
        lines.append(f"{line['name']:<{width}}  {line['value']:.3f}, {interval}")
    sizes = ", ".join(f"{count:,} {split}" for split, count in result["split_sizes"].items())
    lines.append(f"{result['split']} split ({sizes}), seed {result['seed']}")
    lines.append(f"model: {result['checkpoint']}")
    return "\n".join(lines)


def frame(frame: pd.DataFrame) -> str:
    """A table of predictions on a terminal."""
    shown = frame.drop(
        columns=[c for c in ("reason", "warning") if c in frame and not frame[c].any()]
    )
    notes = []
    if "warning" in shown:
        notes = [f"warning: {w}" for w in dict.fromkeys(frame["warning"]) if w]
        shown = shown.drop(columns="warning")
    text = shown.to_string(index=False)
    if len(frame) <= FEW and len(text.split("\n")[0]) > shutil.get_terminal_size().columns:
        text = shown.T.to_string(
            header=False
        )  # few molecules, many properties: one below the other
    return "\n".join([text, *notes])


def doctor(found: Mapping[str, Any]) -> str:
    lines = []
    for check in found["checks"]:
        mark = {"ok": "ok     ", "missing": "missing", "bad": "BAD    "}[check["state"]]
        lines.append(f"{mark}  {check['name']}: {check['says']}")
    return "\n".join(lines)


def _predicts(card: registry.Card) -> str:
    """What is predicted; names of the same unit and description together, a few of very many."""
    known = {p.name: p for p in card.dataset.properties}
    alike: dict[str, list[str]] = {}
    for name in card.predicts:
        p = known.get(name)
        reference = f"; {p.reference}" if p and p.reference else ""
        said = f" [{p.unit}]: {p.description}{reference}" if p else ""
        alike.setdefault(said, []).append(name)
    parts = []
    for said, names in alike.items():
        shown = [*names[:12], f"... ({len(names)} in all)"] if len(names) > 12 else names
        parts.append(", ".join(shown) + said)
    return ", ".join(parts)


def exported(result: Mapping[str, Any]) -> str:
    """Where an exported model is, and how to use it."""
    if result["format"] == "ipu":
        return f"{result['folder']}: {result['packs']}\nread {result['folder']}/README.md"
    size = result["bytes"] / 1e6
    return (
        f"{result['file']}: {result['entry']} as {result['format']}, {size:.1f} MB, with "
        f"{result['file']}.json and .npz beside it\n"
        f"use it with: zoo predict {result['file']} INPUT"
    )


def checked(found: Mapping[str, Any]) -> str:
    """What `zoo check` found, errors first."""
    lines = []
    for finding in found["findings"]:
        where = f"{finding['file']}:{finding['line']}" if finding["file"] else finding["step"]
        times = f" ({finding['count']} times)" if finding["count"] > 1 else ""
        lines.append(f"{finding['level']}: {where}: {finding['kind']}: {finding['says']}{times}")
        lines += [f"    {finding['code']}"] if finding["code"] else []
        lines += [f"    instead: {finding['instead']}"] if finding["instead"] else []
    for step, facts in found["steps"].items():
        memory = facts.get("memory")
        used = (
            f", about {memory['total'] / 1e6:,.0f} MB of {memory['limit'] / 1e6:,.0f}"
            if memory
            else ""
        )
        count = sum(facts["operators"].values()) if facts["operators"] else 0
        size = f"{count} operators of {len(facts['operators'])} kinds" if count else "not one graph"
        lines.append(f"{step}: {'goes' if facts['ok'] else 'does not go'} ({size}{used})")
    verdict = "can be compiled" if found["ok"] else "can't be compiled"
    lines.append(
        f"{found['subject']} {verdict} for {found['backend']}; {'; '.join(found['notes'])}"
    )
    return "\n".join(lines).rstrip("; ")


@contextlib.contextmanager
def layer_progress() -> Iterator[Callable[[int, int, Any], None]]:
    """A bar on a terminal, a line for each category elsewhere; on stderr."""
    from tqdm import tqdm

    terminal = sys.stderr.isatty()
    told: set[str] = set()
    with tqdm(desc="layers", unit=" layers", leave=False, disable=not terminal) as bar:

        def tell(done: int, of: int, layer: Any) -> None:
            bar.total = of
            bar.set_postfix_str(layer.name, refresh=False)
            bar.update(done - bar.n)
            if not terminal and layer.category not in told:
                told.add(layer.category)
                print(f"{done} of {of} layers; {layer.category}", file=sys.stderr, flush=True)

        yield tell


def layers(found: Mapping[str, Any]) -> str:
    """Verdicts on PyG's layers by category, counts at the end."""
    from zoo.backends import layer_page

    rows = found["layers"]
    width = max((len(row["name"]) for row in rows), default=0) + 2
    left = max(shutil.get_terminal_size((180, 24)).columns - width - 43, 40)
    lines = []
    for category in dict.fromkeys(row["category"] for row in rows):
        head = f"{'eager':<7}{'export':<8}{'compile':<9}{'ipu':<5}{'documented':<12}"
        lines += ["", f"{category:<{width + 2}}{head}".rstrip()]
        for row in [row for row in rows if row["category"] == category]:
            cells = layer_page.cells(row)
            note = textwrap.shorten(cells.pop(), left, placeholder=" ...")
            said = "".join(f"{c:<{w}}" for c, w in zip(cells[1:], (7, 8, 9, 5, 12), strict=True))
            lines.append(f"  {cells[0]:<{width}}{said}{note}".rstrip())
    counted = list(found["summary"].items())
    columns = list(counted[-1][1])
    first = max(len(name) for name, _ in counted) + 2
    lines += ["", f"{'counts':<{first}}" + "".join(f"{c:>9}" for c in columns)]
    lines += [f"{n:<{first}}" + "".join(f"{c[x]:>9}" for x in columns) for n, c in counted]
    differing = [row for row in rows if row["agrees"] is False]
    lines += ["", *(f"{row['name']} differs: {layer_page.why(row)}" for row in differing)]
    return "\n".join([*lines[1:], "", *layer_page.notes(found)])
