"""How long a first use takes, in fresh processes: importing, listing, loading."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

from zoo.bench.machine import check_quiet, describe
from zoo.bench.turns import alternate, load_facts, spread
from zoo.bench.worker import environment
from zoo.errors import RequestError, ZooError

_LIMITS = {"import_zoo_s": 0.15, "zoo_ls_s": 0.5, "zoo_load_s": 0.5}


def bench_startup(
    *, name: str = "schnet-qm9", repeats: int = 9, force: bool = False
) -> dict[str, Any]:
    """Seconds that `import zoo`, `zoo ls` and `zoo.load(name)` take; JSON-able.

    Wall time of whole processes, in turns: `import_zoo_s` beyond an empty Python, `zoo_ls_s` all of
    it, `zoo_load_s` beyond a process that imports torch. A value is None, with the reason in
    `failures`, where the work fails. ZooError when something else uses the cores, unless `force`.
    """
    if repeats < 1:
        raise RequestError("a bench needs at least one repeat")
    before = check_quiet(force=force)
    codes = {
        "python": "pass",
        "import torch": "import torch",
        "import zoo": "import zoo",
        "zoo ls": "import sys; sys.argv = ['zoo', 'ls']; from zoo.cli import main; main()",
        "zoo.load": f"import zoo; zoo.load({name!r})",
    }
    # Once each, not counted: bytecode is written and files come into the page cache.
    failures = {}
    for title, code in codes.items():
        done = _python(code)
        if done.returncode != 0:
            failures[title] = _last_line(done.stderr)
    rounds = alternate(
        sides={
            title: lambda code=code: _seconds(code)  # type: ignore[misc]
            for title, code in codes.items()
            if title not in failures
        },
        repeats=repeats,
        force=force,
        title="starting",
    )
    times = {title: spread(values) for title, values in rounds.values.items()}

    def beyond(title: str, base: str | None) -> float | None:
        if title not in times or (base and base not in times):
            return None
        taken: float = times[title]["median"] - (times[base]["median"] if base else 0.0)
        return taken

    result: dict[str, Any] = {
        "bench": "startup",
        "entry": name,
        "import_zoo_s": beyond("import zoo", "python"),
        "zoo_ls_s": beyond("zoo ls", None),
        "zoo_load_s": beyond("zoo.load", "import torch"),
        "processes_s": times,
        "limits_s": _LIMITS,
        "failures": failures,
        "loads": {
            title: _loaded(codes[title]) for title in codes if title.startswith(("import z", "zoo"))
        },
        "repeats": repeats,
        "machine": describe(),
        "load": load_facts(before=before, rounds=rounds, force=force),
    }
    result["within_limits"] = all(
        result[key] is not None and result[key] < limit for key, limit in _LIMITS.items()
    )
    return result


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment({}),
        check=False,
    )


def _last_line(text: str) -> str:
    """The last line that isn't empty: where Python puts what went wrong."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def _seconds(code: str) -> float:
    began = time.perf_counter()
    done = _python(code)
    seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise ZooError(f"a measured process failed: {_last_line(done.stderr)}")
    return seconds


def _loaded(code: str) -> list[str]:
    """Which of the heavy packages the work imports."""
    heavy = ["torch", "torch_geometric", "pandas", "mlflow", "rdkit", "numba", "ase", "scipy"]
    end = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print('', *(n for n in {heavy} if n in sys.modules)))\n"
    )
    done = _python(end + code)
    return done.stdout.splitlines()[-1].split() if done.stdout else []


def render(result: dict[str, Any]) -> str:
    """A result of `bench_startup` for a reader."""
    lines = [f"start-up in fresh processes, {result['repeats']} of each"]
    for key, label in (
        ("import_zoo_s", "import zoo, beyond Python"),
        ("zoo_ls_s", "zoo ls, all of it"),
        ("zoo_load_s", f"zoo.load({result['entry']!r}), beyond import torch"),
    ):
        value, limit = result[key], result["limits_s"][key]
        shown = "failed" if value is None else f"{value:.3f} s"
        lines.append(f"  {label:<44} {shown:>9} (limit {limit})")
    lines += [f"  {title} failed: {why}" for title, why in result["failures"].items()]
    load = result["load"]
    lines.append(
        f"  others used at most {load['others_in_rounds_max']:.2f} of a core"
        + (" (forced)" if load["forced"] else "")
    )
    return "\n".join(lines)
