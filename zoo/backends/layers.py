"""Which layers of the installed PyG go where shapes are fixed: all of them, each with a verdict."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from types import TracebackType
from typing import Any, NamedTuple, Self

from zoo.backends.ipu.documented import compared, documented
from zoo.errors import UnavailableError

SECONDS = 60.0
"""The time that one layer may take; the slowest needs a tenth of it."""
_START_SECONDS = 120.0
VERDICTS = ("eager", "export", "compile", "ipu")
EXTENSIONS = ("pyg_lib", "torch_scatter", "torch_sparse", "torch_cluster", "torch_spline_conv")

# Rooms of torch_geometric.nn ("" is its own) and what stands in them; None: the object tells.
_ROOMS = {
    "conv": "Convolution",
    "aggr": "Aggregation",
    "norm": "Normalization",
    "pool": "Pooling",
    "unpool": "Unpooling",
    "dense": None,
    "functional": "Functional",
    "kge": "KGE Models",
    "": None,
}
# Where documented names are that no room's __all__ has.
_ELSEWHERE = ("nn.models", "utils", "nn.pool.consecutive", "nn.pool.decimation")


def blank_row(*, category: str, name: str) -> dict[str, Any]:
    """The row of a layer that couldn't be tried."""
    return {
        "category": category,
        "name": name,
        "built_with": {},
        "called_with": {},
        **dict.fromkeys(VERDICTS),
        "refused_by_pyg": None,
        "findings": [],
        "reason": "",
    }


class Listed(NamedTuple):
    """A layer by its category, its name, and the module that has it."""

    category: str
    name: str
    module: str


def listed() -> list[Listed]:
    """Every name that PyG's rooms of layers export, then the documented ones from elsewhere."""
    try:
        importlib.import_module("torch_geometric.nn")
    except ImportError as error:
        raise UnavailableError(f"PyG can't be imported: {error}") from error
    found: dict[str, Listed] = {}
    for room, category in _ROOMS.items():
        path = f"torch_geometric.nn.{room}".rstrip(".")
        module = importlib.import_module(path)
        for name in module.__all__:
            kind = category or _category(getattr(module, name))
            found.setdefault(name, Listed(kind, name, path))
    for name, facts in documented().items():
        if name not in found:
            found[name] = Listed(facts.category, name, _home(name))
    order = list(dict.fromkeys(one.category for one in found.values()))
    return sorted(found.values(), key=lambda one: order.index(one.category))


def _category(value: Any) -> str:
    """The category of what stands in torch_geometric.nn.dense or in torch_geometric.nn itself."""
    if value.__module__.endswith(".encoding"):
        return "Encoding"
    if ".dense." not in value.__module__ or value.__module__.endswith(".linear"):
        wraps = {"model", "module"} & inspect.signature(value).parameters.keys()
        return "Wrappers of models" if wraps else "Basic blocks"
    return "Dense convolutional" if value.__name__.endswith("Conv") else "Dense pooling"


def _home(name: str) -> str:
    """The module that has a name, "" where none does."""
    for part in _ELSEWHERE:
        path = f"torch_geometric.{part}"
        if importlib.util.find_spec(path) and hasattr(importlib.import_module(path), name):
            return path
    return ""


def coverage(
    *,
    layers: Iterable[Listed] | None = None,
    seconds: float = SECONDS,
    tell: Callable[[int, int, Listed], object] = lambda done, of, layer: None,
) -> dict[str, Any]:
    """Each layer (default: all of PyG's) in eager mode, exported, compiled, and by the IPU's rules.

    A layer that takes over `seconds`, or ends its process, costs its own row alone. `tell` is
    called before each layer with the number done, the number of all, and the layer. Returns
    {"layers": rows, "summary": counts by category, "versions": ...}, JSON-able; in a row a verdict
    is None where the layer can't be tried here, and `reason` says why. UnavailableError where PyG
    is missing.
    """
    chosen = list(listed() if layers is None else layers)
    rows = []
    with _Judge(seconds=seconds) as judge:
        for done, one in enumerate(chosen):
            tell(done, len(chosen), one)
            rows.append(compared(judge.ask(one)))
    return {"layers": rows, "summary": summary(rows), "versions": versions()}


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Counts by category, and of "all": layers, tried ones, those that go, and agreements."""
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        for category in (row["category"], "all"):
            count = counts.setdefault(category, Counter(dict.fromkeys(_COUNTED, 0)))
            count["layers"] += 1
            count["tried"] += row["eager"] is not None
            for verdict in VERDICTS:
                count[verdict] += row[verdict] is True
            count["agree"] += row["agrees"] is True
            count["differ"] += row["agrees"] is False
    whole = counts.pop("all", Counter())
    return {name: dict(count) for name, count in (*counts.items(), ("all", whole))}


_COUNTED = ("layers", "tried", *VERDICTS, "agree", "differ")


def versions() -> dict[str, Any]:
    """What the verdicts depend on."""
    return {
        "torch": version("torch"),
        "torch_geometric": version("torch_geometric"),
        "extensions": [name for name in EXTENSIONS if importlib.util.find_spec(name)],
        "poptorch_facts": "3.4",
    }


class _Judge:
    """The process that judges layers, started anew where one took too long or ended it."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None

    def ask(self, layer: Listed) -> dict[str, Any]:
        """The layer's row."""
        row = blank_row(category=layer.category, name=layer.name)
        if not layer.module:
            return row | {"reason": "this PyG has none of that name"}
        process = self._process = self._process or _start(seconds=self._seconds)
        line = _exchange(process, json.dumps(layer._asdict()), seconds=self._seconds)
        if line.endswith("\n"):
            row |= json.loads(line)
            return row
        self._process = None
        code = _stop(process)
        if line == _LATE:
            return row | {"reason": f"not done within {self._seconds:g} s"}
        return row | {"reason": f"it ended its process (exit status {code})"}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            _stop(self._process)


_LATE = "late"


def _start(*, seconds: float) -> subprocess.Popen[str]:
    # Not multiprocessing's spawn, which would run an unguarded script of the user's again.
    work = f"from zoo.backends import layer_worker; layer_worker.serve(seconds={seconds})"
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {work}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    except OSError as error:
        raise UnavailableError(f"cannot start {sys.executable!r}: {error}") from error
    if not _exchange(process, "", seconds=_START_SECONDS).endswith("\n"):
        code = _stop(process)
        raise UnavailableError(f"the process that judges layers ended with status {code}")
    return process


def _exchange(process: subprocess.Popen[str], line: str, *, seconds: float) -> str:
    """Send a line and return the answer: cut short where the process ends, _LATE where it is killed
    because the time is up.
    """
    assert process.stdin is not None and process.stdout is not None
    late = threading.Event()

    def kill() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    except OSError:  # it died while we wrote
        answer = ""
    finally:
        timer.cancel()
    return _LATE if late.is_set() else answer


def _stop(process: subprocess.Popen[str]) -> int:
    process.kill()
    process.communicate()
    return process.returncode
