"""The `zoo` command: parse, call the face, print; commands import what they need when they run."""

from __future__ import annotations

import io
import json as _json
import os
import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

import zoo
from zoo import cli_molecules
from zoo.cli_emit import emit
from zoo.errors import RequestError, StoppedError, ZooError

app = typer.Typer(
    name="zoo",
    help="Scientific graph neural networks by name: run, evaluate, predict, export.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Name = Annotated[str, typer.Argument(help="An entry, such as schnet-qm9 or schnet-qm9.homo.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(help="Overrides such as train.lr=5e-4.", metavar="[K=V]...")
]


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    pass


@app.command("ls")
def ls(
    pattern: Annotated[str, typer.Argument(help="A glob, such as '*qm9*'.")] = "*",
    json: Json = False,
) -> None:
    """List entries; those with trained weights are marked."""
    from zoo import cli_text

    rows = cli_text.entries(zoo.list(pattern))
    if not rows:
        raise RequestError(f"no entry matches {pattern!r}; `zoo ls` lists all of them")
    emit({"entries": rows}, json=json, text=lambda: cli_text.listing(rows))


@app.command("show")
def show(name: Name, json: Json = False) -> None:
    """Show an entry's card: data, units, licence, target, measured results, weights, limits."""
    from zoo import cli_text

    card = zoo.card(name)
    emit(card.as_dict(), json=json, text=lambda: cli_text.card(card))


@app.command("config")
def config(
    name: Annotated[str, typer.Argument(help="An entry or a YAML file.")],
    overrides: Overrides = None,
    preset: Annotated[str, typer.Option(help="smoke, quick or full.")] = "full",
    json: Json = False,
) -> None:
    """Print every field of a recipe: value, default, allowed values, meaning."""
    from zoo import cli_text
    from zoo.recipes.config import describe, load_config

    resolved = load_config(name, preset=preset, overrides=overrides or [])
    rows = describe(resolved)
    emit({"entry": resolved.entry, "fields": rows}, json=json, text=lambda: cli_text.fields(rows))


@app.command("cp")
def cp(name: Name, folder: Path, json: Json = False) -> None:
    """Copy an entry's recipe to FOLDER, to be edited and run by path."""
    from zoo import registry
    from zoo.files import replace_file

    entry, tag = registry.resolve(name)
    out = folder / entry.recipe
    if out.exists():
        raise RequestError(f"{out} exists already; move it away first")
    replace_file(out, (registry.RECIPES / entry.recipe).read_bytes())
    run = f"zoo run {out}" + ("" if tag == next(iter(entry.tags)) else f":{tag}")
    emit({"file": str(out), "run": run}, json=json, text=lambda: f"{out}\nrun it with: {run}")


@app.command("fetch")
def fetch(
    name: Annotated[str | None, typer.Argument(help="An entry.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All entries with weights.")] = False,
    json: Json = False,
) -> None:
    """Make sure that weights are on this machine, verified."""
    if everything == (name is not None):
        raise RequestError("name one entry, or give --all")
    names = zoo.list(weights=True) if everything else [str(name)]
    found = {n: str(zoo.fetch(n)) for n in names}
    emit(
        {"files": found},
        json=json,
        text=lambda: "\n".join(f"{n}: {path}" for n, path in found.items()) or "no entry has any",
    )


@app.command("run")
def run(
    name: Annotated[str, typer.Argument(help="An entry or a YAML file.")],
    overrides: Overrides = None,
    preset: Annotated[str, typer.Option(help="smoke, quick or full.")] = "full",
    seed: Annotated[int | None, typer.Option(help="Same as train.seed=N.")] = None,
    replicas: Annotated[int | None, typer.Option(help="Data-parallel processes.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where the run lies.")] = None,
    json: Json = False,
) -> None:
    """Train an entry's recipe, tracked by MLflow."""
    from zoo import cli_text

    chosen = [*(overrides or []), *([] if replicas is None else [f"train.replicas={replicas}"])]
    result = zoo.run(name, *chosen, preset=preset, seed=seed, folder=folder)
    emit(result, json=json, text=lambda: cli_text.result(result))


@app.command("resume")
def resume(
    folder: Annotated[Path, typer.Argument(help="A run's folder.")], json: Json = False
) -> None:
    """Go on with a run from its last checkpoint, to the bit."""
    from zoo import cli_text

    result = zoo.resume(folder)
    emit(result, json=json, text=lambda: cli_text.result(result))


@app.command("evaluate")
def evaluate(
    name: Annotated[str, typer.Argument(help="An entry, weight file, checkpoint or run.")],
    overrides: Overrides = None,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    json: Json = False,
) -> None:
    """Metrics of trained weights over a whole split."""
    from zoo import cli_text

    result = zoo.evaluate(name, *(overrides or []), split=split)
    for warning in result["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    emit(result, json=json, text=lambda: cli_text.result(result))


@app.command("export")
def export(
    name: Annotated[str, typer.Argument(help="An entry, weight file, checkpoint or run.")],
    overrides: Overrides = None,
    form: Annotated[str, typer.Option("--format", help="pt2, aoti, onnx or ipu.")] = "pt2",
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File or (ipu) folder.")] = None,
    preset: Annotated[str, typer.Option(help="ipu: smoke, quick or full.")] = "full",
    packs: Annotated[int, typer.Option(help="ipu: packs of each split to write; 0 all.")] = 0,
    json: Json = False,
) -> None:
    """Write a model as a file that runs without the zoo."""
    from zoo import cli_text

    chosen = overrides or []
    result = zoo.export(name, *chosen, format=form, out=out, preset=preset, packs=packs)
    emit(result, json=json, text=lambda: cli_text.exported(result))


@app.command("check")
def check(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME|FILE.py:CLASS", help="What to check.")
    ] = None,
    overrides: Overrides = None,
    backend: Annotated[str, typer.Option(help="ipu, export or inductor.")] = "ipu",
    example: Annotated[Path | None, typer.Option(help="A .pt2 with a class's inputs.")] = None,
    preset: Annotated[str, typer.Option(help="smoke, quick or full.")] = "full",
    layers: Annotated[bool, typer.Option("--layers", help="All of PyG's layers instead.")] = False,
    docs: Annotated[Path | None, typer.Option(help="--layers: write a page, .md.")] = None,
    json: Json = False,
) -> None:
    """Say whether a backend can compile a model, and which lines stand in the way."""
    from zoo import cli_text

    if layers == (name is not None):
        raise RequestError("name an entry or a class of yours to check, or give --layers")
    if layers:
        if (backend, example, preset) != ("ipu", None, "full"):
            raise RequestError("--layers asks every backend; it takes --docs and --json alone")
        _check_layers(docs=docs, json=json)
        return
    if docs is not None:
        raise RequestError("--docs is for --layers")
    chosen = overrides or []
    found = zoo.check(str(name), *chosen, backend=backend, example=example, preset=preset)
    emit(found, json=json, text=lambda: cli_text.checked(found))
    if not found["ok"]:
        raise typer.Exit(1)


def _check_layers(*, docs: Path | None, json: bool) -> None:
    from zoo import cli_text
    from zoo.backends import layer_page, layers
    from zoo.files import replace_file

    with cli_text.layer_progress() as tell:
        found = layers.coverage(tell=tell)
    if docs is not None:
        replace_file(docs, layer_page.page(found).encode())
    emit(found, json=json, text=lambda: cli_text.layers(found))


@app.command("doctor")
def doctor(json: Json = False) -> None:
    """Say what works on this machine and what is missing."""
    from zoo import cli_text, doctor

    found = doctor.examine()
    emit(found, json=json, text=lambda: cli_text.doctor(found))
    if not found["ok"]:
        raise typer.Exit(1)


app.command("predict")(cli_molecules.predict)
app.command("finetune")(cli_molecules.finetune)


def main() -> None:
    """Entry point: runs a command and turns errors into one to three lines and an exit code."""
    # Idle operator threads must sleep, not spin: lanes use their cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without Å isn't worth a failure
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, _stop)
    try:
        if sys.argv[1:] == ["--version"]:
            print(f"gnn-zoo {zoo.__version__}")
            sys.exit(0)
        _add_bench()
        code = app(standalone_mode=False)
        if code == 130:  # what typer makes of Ctrl-C
            raise KeyboardInterrupt
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except BrokenPipeError:  # the reader has seen enough: zoo ls | head -1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        sys.exit(_explain(error))
    except KeyboardInterrupt:
        if "--json" in sys.argv:
            print(_json.dumps({"error": "stopped by SIGINT", "exit_code": 130}))
        print("stopped", file=sys.stderr)
        sys.exit(130)


def _stop(number: int, frame: Any) -> None:
    """What SIGTERM does where nothing waits for it: ends the work, and what is half-written."""
    raise StoppedError("stopped by SIGTERM")


def _explain(error: Exception) -> int:
    """Print an error for people (and for --json, an object); returns the exit code."""
    if isinstance(error, typer.Exit | typer.Abort):
        return getattr(error, "exit_code", 1)
    # Asked by what it can do, not by type: typer has had click's exceptions and its own.
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        code, text = int(error.exit_code), _usage(error)
        if not text:
            return code
    elif isinstance(error, ZooError):
        code, text = error.exit_code, str(error)
    else:
        code = 1
        first = str(error).strip().split("\n")[0]
        text = f"unexpected {type(error).__name__}: {first}\nZOO_DEBUG=1 shows where it came from"
    if os.environ.get("ZOO_DEBUG") == "1":
        traceback.print_exception(error)
    if "--json" in sys.argv:
        print(_json.dumps({"error": text, "exit_code": code}))
    print(f"error: {text}", file=sys.stderr)
    return code


def _usage(error: Any) -> str:
    """What the parser says of a wrong option or command; "" for a help page, which is printed."""
    context = getattr(error, "ctx", None)
    words: list[str] = []
    while context is not None and context.parent is not None:
        words.insert(0, str(context.info_name))
        context = context.parent
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return ""
    return f"{str(error.format_message()).strip()}\nsee: {' '.join(['zoo', *words, '-h'])}"


def _add_bench() -> None:
    """Attach `zoo bench ...`, only where it is asked for: it is many imports."""
    if len(sys.argv) < 2 or sys.argv[1] in ("bench", "--help", "-h"):
        from zoo.bench.commands import app as bench

        app.add_typer(bench, name="bench")


if __name__ == "__main__":
    main()
