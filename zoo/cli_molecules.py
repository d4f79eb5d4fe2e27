"""The commands for a person's own molecules: `zoo predict`, `zoo finetune`."""

from __future__ import annotations

import json as _json
from pathlib import Path
from typing import Annotated, Any

import typer

import zoo
from zoo.cli_emit import emit
from zoo.errors import RequestError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def predict(
    name: Annotated[str, typer.Argument(help="An entry, weight file, checkpoint or run.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT", help="CSV, SDF, extxyz or a SMILES; of facts, TSV or CSV with a ?."
        ),
    ],
    out: Annotated[Path | None, typer.Option("-o", "--out", help=".csv or .parquet")] = None,
    smiles: Annotated[str | None, typer.Option(help="The column with SMILES.")] = None,
    on_error: Annotated[str, typer.Option(help="nan, skip or raise.")] = "nan",
    seconds: Annotated[float | None, typer.Option(help="Time limit of a conformer (10).")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of conformers (0).")] = None,
    facts: Annotated[
        Path | None, typer.Option(help="Complete facts on this graph, not the model's own.")
    ] = None,
    k: Annotated[int | None, typer.Option("-k", help="Completions of each fact (10).")] = None,
    json: Json = False,
) -> None:
    """Predict for molecules, or complete facts; invalid rows are reported, none is lost."""
    from zoo import cli_text
    from zoo.recipes.link_model import LinkModel
    from zoo.recipes.predictions import needs_geometry, predict_file

    model = zoo.load(name)
    own = {"conformer_seconds": seconds, "seed": seed}
    if isinstance(model, LinkModel):
        if smiles is not None or any(value is not None for value in own.values()):
            raise RequestError(f"{name} completes facts: it reads no molecules")
        frame = model.predict(source, k=10 if k is None else k, facts=facts, on_error=on_error)
        _emit_completions(frame, out=out, json=json)
        return
    if facts is not None or k is not None:
        raise RequestError(f"{name} predicts for molecules: --facts and -k are for missing facts")
    options: dict[str, Any] = {"smiles": smiles, "on_error": on_error}
    given = {key: value for key, value in own.items() if value is not None}
    if given and not needs_geometry(model):
        raise RequestError(f"{name} predicts from bonds alone: it makes no conformers")
    options |= given
    if out is None:
        frame = model.predict(source, **options)
        records = _json.loads(frame.to_json(orient="records"))
        emit({"predictions": records}, json=json, text=lambda: cli_text.frame(frame))
        return
    report = predict_file(model=model, source=source, out=out, **options)
    summary = {
        "file": str(out),
        "rows": report.rows,
        "invalid": report.refused,
        "report": str(report.path) if report.problems else None,
    }
    emit(summary, json=json, text=lambda: f"{out}: {report.summary()}")


def _emit_completions(frame: Any, *, out: Path | None, json: bool) -> None:
    from zoo import cli_text
    from zoo.files import disk

    if out is None:
        records = _json.loads(frame.to_json(orient="records"))
        emit({"predictions": records}, json=json, text=lambda: cli_text.frame(frame))
        return
    if out.suffix not in (".csv", ".tsv", ".parquet"):
        raise RequestError(f"cannot write {out}: its name should end in .csv, .tsv or .parquet")
    with disk(out):
        if out.suffix == ".parquet":
            frame.to_parquet(out)
        else:
            frame.to_csv(out, index=False, sep="\t" if out.suffix == ".tsv" else ",")
    refused = int((~frame["valid"].astype(bool)).sum())
    summary = {"file": str(out), "rows": len(frame), "invalid": refused}
    emit(summary, json=json, text=lambda: f"{out}: {len(frame)} rows, {refused} queries refused")


def finetune(
    name: Annotated[str, typer.Argument(help="What to start from: an entry, weight file or run.")],
    data: Annotated[Path, typer.Option(help="CSV, TSV, Parquet or SDF with SMILES and labels.")],
    labels: Annotated[list[str], typer.Option(help="A column to learn; may be repeated.")],
    smiles: Annotated[str | None, typer.Option(help="The column with SMILES.")] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="LABEL=regression, binary or multiclass.")
    ] = None,
    split: Annotated[
        str, typer.Option(help="scaffold, scaffold-balanced, random, column or kfold.")
    ] = "scaffold",
    split_column: Annotated[str | None, typer.Option(help="train, valid or test of a row.")] = None,
    folds: Annotated[int, typer.Option(help="Parts of kfold.")] = 5,
    seed: Annotated[int, typer.Option(help="Of split, new weights, order, dropout.")] = 0,
    epochs: Annotated[int, typer.Option(help="0 chooses by the number of rows.")] = 0,
    patience: Annotated[int, typer.Option(help="Epochs without gain; 0 never stops.")] = 10,
    lr: Annotated[float, typer.Option(help="Learning rate of the new output layer.")] = 1e-3,
    body_lr: Annotated[float, typer.Option(help="Of the rest, as a share of --lr.")] = 0.3,
    freeze: Annotated[bool, typer.Option("--freeze", help="Train the output layer alone.")] = False,
    ensemble: Annotated[int, typer.Option(help="Models that differ in seed, averaged.")] = 1,
    precision: Annotated[str, typer.Option(help="float32 or bf16.")] = "float32",
    largest_fragment: Annotated[
        bool, typer.Option("--largest-fragment", help="Of salts, keep the largest part.")
    ] = False,
    on_error: Annotated[str, typer.Option(help="Invalid rows: raise or skip.")] = "raise",
    scratch: Annotated[bool, typer.Option(help="Compare with the same untrained.")] = True,
    forest: Annotated[bool, typer.Option(help="Compare with a random forest.")] = True,
    tracking: Annotated[bool, typer.Option(help="Log to MLflow.")] = True,
    folder: Annotated[Path | None, typer.Option(help="Where the run lies.")] = None,
    json: Json = False,
) -> None:
    """Tune a model of molecules on your own table, and compare it honestly."""
    from zoo import cli_text

    kinds = dict(_named(text) for text in kind or [])
    chosen = {
        key: value
        for key, value in locals().items()
        if key not in ("name", "kind", "json", "cli_text")
    }
    result = zoo.finetune(name, **chosen)
    emit(result, json=json, text=lambda: cli_text.finetuned(result))


def _named(text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not equals:
        raise RequestError(f"--kind {text!r} isn't LABEL=KIND, such as activity=regression")
    return name, value
