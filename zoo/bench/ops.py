"""Gather, scatter and their like over a grid of shapes: torch's fastest eager form against ours.

The grid is that of a published benchmark of IPUs: inputs 2^4 to 2^12, features 2^4 to 2^9, outputs
2^5 to 2^15. A scatter's index isn't sorted; the sort that ours needs is counted.
"""

from __future__ import annotations

import csv
import datetime
import itertools
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.bench.machine import QUIET, LoadMeter, busy_error, check_quiet, peaks
from zoo.bench.ops_forms import OPS
from zoo.bench.worker import Worker
from zoo.errors import RequestError

GRID = {
    "inputs": [2**k for k in range(4, 13)],
    "features": [2**k for k in range(4, 10)],
    "outputs": [2**k for k in range(5, 16)],
}
QUICK = {"inputs": [64, 1024, 4096], "features": [16, 64, 512], "outputs": [32, 1024, 32768]}
LARGE = 2**18
"""Elements moved from which on a shape counts as large."""
PUBLISHED = [
    {
        "op": "gather",
        "what": "Bow IPU against A100 over 594 shapes, geometric mean",
        "geomean_speedup": 4.03,
        "best": 13.4,
    },
    {
        "op": "scatter_sum",
        "what": "Bow IPU against A100 over 594 shapes, geometric mean",
        "geomean_speedup": 5.31,
        "best": 19.7,
    },
    {
        "op": "schnet_block",
        "what": "Bow IPU against A100 over 594 shapes, geometric mean",
        "geomean_speedup": 4.53,
        "best": 7.5,
    },
]
"""Other machines' figures, computed from the CSVs published with that benchmark; not ours."""
KEY = ("op", "inputs", "features", "outputs")


def new_folder() -> Path:
    """A folder for a result: `runs/bench-ops-<time>` where the command was given."""
    return Path("runs") / f"bench-ops-{datetime.datetime.now():%Y%m%d-%H%M%S}"


def bench_ops(
    *,
    quick: bool = False,
    ops: Sequence[str] = OPS,
    grid: Mapping[str, Sequence[int]] | None = None,
    repeats: int = 5,
    turn_ms: float = 1.0,
    compile: bool | None = None,
    out: Path | None = None,
    reference: Path | None = None,
    track: bool = True,
    force: bool = False,
) -> dict[str, Any]:
    """Seconds of each form at each point, and the speed-ups of ours; JSON-able.

    Forms take turns of `turn_ms` in one process, `repeats` times; a form's figure is the median.
    `compile` also measures torch.compile of the fastest eager form (default: unless quick; it needs
    g++). `out` receives a CSV, heat maps and a roofline, and an MLflow run their copies, unless
    `track` is off. `reference` is another machine's CSV to lay beside. ZooError when something else
    uses the cores, unless `force`; RequestError for an unknown op or a CSV that isn't one of these.
    """
    unknown = sorted(set(ops) - set(OPS))
    if unknown or repeats < 1 or turn_ms <= 0:
        raise RequestError(f"no op {unknown[0]!r}" if unknown else "a bench needs some repeats")
    theirs = _read(reference) if reference else {}
    before = check_quiet(force=force)
    meter = LoadMeter()
    points = grid or (QUICK if quick else GRID)
    compiling = not quick if compile is None else compile
    how = {"repeats": repeats, "turn_ms": turn_ms, "compiling": compiling}
    with Worker("zoo.bench.ops_measure:worker", env={"OMP_WAIT_POLICY": None}) as process:
        rows = [
            process.ask("measure", **dict(zip(KEY, point, strict=True)), **how)
            for point in itertools.product(ops, *(points[name] for name in KEY[1:]))
        ]
        machine = process.ask("describe")
    load = meter.read()
    if load.others > QUIET and not force:
        raise busy_error(load)
    for row in rows:
        other = theirs.get(tuple(row[name] for name in KEY))
        if other:
            row["reference_s"] = other
            row["speedup_over_reference"] = other / (row["ours_s"] or row["eager_s"])
    result: dict[str, Any] = {
        "bench": "ops",
        "quick": quick,
        "summary": {op: _summary([r for r in rows if r["op"] == op]) for op in ops},
        "published_elsewhere": [row for row in PUBLISHED if row["op"] in ops],
        "rows": rows,
        "peaks": peaks(),
        "large_elements": LARGE,
        "repeats": repeats,
        "turn_ms": turn_ms,
        "machine": machine,
        "load": {
            "others_before": round(before.others, 3),
            "others": round(load.others, 3),
            "stolen": round(load.stolen, 3),
            "forced": force,
        },
    }
    if out is not None:
        result["files"] = [str(path) for path in _write(out, result)]
        if track:
            result["run_id"] = _track(out, result)
    return result


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Geometric means of our speed-ups over the fastest eager form, and the worst."""
    told = [r for r in rows if r["speedup"] is not None]
    if not told:
        return {"points": len(rows)}
    large = [r["speedup"] for r in told if r["elements"] >= LARGE]
    worst = min(told, key=lambda r: r["speedup"])
    sorted_ = [r["eager_s"] / r["ours_sorted_s"] for r in told if r["ours_sorted_s"]]
    return {
        "points": len(rows),
        "geomean_speedup": statistics.geometric_mean([r["speedup"] for r in told]),
        "large_points": len(large),
        "geomean_speedup_large": statistics.geometric_mean(large) if large else None,
        "geomean_speedup_sorted_before": statistics.geometric_mean(sorted_) if sorted_ else None,
        "worst": worst["speedup"],
        "worst_at": {name: worst[name] for name in KEY[1:]},
        "below_0.9": sum(r["speedup"] < 0.9 for r in told),
    }


def _write(out: Path, result: Mapping[str, Any]) -> list[Path]:
    from zoo.bench.ops_plots import save_heat_maps, save_roofline
    from zoo.files import disk

    with disk(out):
        out.mkdir(parents=True, exist_ok=True)
        table = out / "ops.csv"
        columns = [name for name in result["rows"][0] if name != "forms_s"]
        columns += [c for c in ("reference_s", "speedup_over_reference") if c not in columns]
        with table.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(result["rows"])
        return [table, *save_heat_maps(out, result["rows"]), save_roofline(out, result)]


def _track(out: Path, result: Mapping[str, Any]) -> str | None:
    from zoo.training.tracking import Tracker

    with Tracker(experiment="bench-ops", run_name=out.name, folder=out) as log:
        log.params({"quick": result["quick"], **result["machine"]})
        flat = {
            f"{op}/{name}": float(value)
            for op, summary in result["summary"].items()
            for name, value in summary.items()
            if isinstance(value, int | float)
        }
        log.metrics(flat, step=0)
        for path in result["files"]:
            log.artifact(Path(path))
    return log.run_id


def _read(path: Path) -> dict[tuple[Any, ...], float]:
    """Another machine's CSV: its best seconds by op and shape."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return {
            (row["op"], *(int(row[name]) for name in KEY[1:])): min(
                float(row[name]) for name in ("eager_s", "ours_s") if row.get(name)
            )
            for row in rows
        }
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}") from error
    except (KeyError, ValueError) as error:
        raise RequestError(
            f"{path} isn't a CSV of `zoo bench ops`: it needs the columns {', '.join(KEY)}, eager_s"
        ) from error


def render(result: Mapping[str, Any]) -> str:
    """A result of `bench_ops` for a reader."""
    lines = [
        f"speed-up of ours over torch's fastest eager form, {result['machine']['threads']} threads"
    ]
    for op, s in result["summary"].items():
        if "geomean_speedup" not in s:
            lines.append(f"  {op:<13} torch's own is used ({s['points']} points)")
            continue
        large = s["geomean_speedup_large"]
        lines.append(
            f"  {op:<13} {s['geomean_speedup']:5.2f} over {s['points']} points"
            + (f", {large:5.2f} over the {s['large_points']} large ones" if large else "")
            + f", worst {s['worst']:.2f}"
        )
    lines += [
        f"  published elsewhere, {row['op']}: {row['what']}: {row['geomean_speedup']:.1f}, "
        f"best {row['best']:.1f}"
        for row in result["published_elsewhere"]
    ]
    copy = result["peaks"]["copy_gb_per_s"]
    most = max(result["rows"], key=lambda row: row["gb_per_s"])
    lines.append(f"  a copy runs at {copy:.0f} GB/s; {most['op']} at best {most['gb_per_s']:.0f}")
    failed = [row for row in result["rows"] if "compiled_failed" in row]
    if failed:
        lines.append(f"  not compiled: {len(failed)} forms, first: {failed[0]['compiled_failed']}")
    return "\n".join([*lines, *(f"  {path}" for path in result.get("files", []))])
