"""What `zoo export` does, by name: a trained model as a file that runs without the zoo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from zoo import registry
from zoo.artifact import Spec
from zoo.backends.exporting import FORMS, SUFFIX, Form, json_path, needs, write_export
from zoo.backends.graph import trace
from zoo.batching.pack import Batch, fill_batch
from zoo.batching.shape import FixedSize
from zoo.batching.store import make_store
from zoo.errors import RequestError, unknown
from zoo.recipes.building import find_weights, load_file
from zoo.recipes.packed import Molecule, molecule_store, shares


def export(
    name: str | Path,
    *,
    form: str,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    preset: str = "full",
    packs: int = 0,
) -> dict[str, Any]:
    """See `zoo.export`."""
    if form == "ipu":
        from zoo.recipes.exporting_ipu import export_ipu

        folder = None if out is None else Path(out)
        return export_ipu(name, folder=folder, overrides=overrides, preset=preset, packs=packs)
    for one in FORMS:
        if form == one:
            if overrides or preset != "full" or packs:
                raise RequestError("overrides, a preset and a number of packs are for format ipu")
            return _export_file(name, form=one, out=None if out is None else Path(out))
    raise unknown(kind="format", name=form, known=(*FORMS, "ipu"))


def _export_file(name: str | Path, *, form: Form, out: Path | None) -> dict[str, Any]:
    needs(form)
    model = load_file(find_weights(name))
    spec = model.spec
    if spec.task == "link":
        raise RequestError(f"{name} answers on a graph: there is no export of it as a file yet")
    if len(model.modules) > 1:
        raise RequestError(
            f"{name} is the mean of {len(model.modules)} networks, and a file holds one\n"
            "export a model of one member (finetune without --ensemble and kfold)"
        )
    path = out or Path(f"{spec.entry}{SUFFIX[form]}")
    if not path.name.endswith(".onnx" if form == "onnx" else ".pt2"):
        raise RequestError(f"cannot export to {path}: its name should end in {SUFFIX[form]}")
    batch = example_graphs(spec) if spec.task == "property" else example_batch(spec)
    program = trace(module=model.module, step=predict_step, batch=batch)
    write_export(
        program=program,
        form=form,
        path=path,
        example=batch,
        outputs=["scaled"],
        facts=facts(spec, sha256=model.sha256),
    )
    return {
        "file": str(path),
        "json": str(json_path(path)),
        "format": form,
        "entry": spec.entry,
        "batch_shape": spec.batch_shape.model_dump(),
        "bytes": path.stat().st_size,
    }


def predict_step(module: nn.Module, batch: Batch) -> Tensor:
    """Scaled predictions [G, outputs]: what exports compute."""
    output: Tensor = module(batch)
    return output


def facts(spec: Spec, *, sha256: str) -> dict[str, Any]:
    """What an exported model has to say besides its tensors; JSON-able.

    Of an energy `unscale` turns an output into the property: the sum of `per_atom` over the
    molecule's atoms (by atomic number), plus `mean`, plus `std` times the output, in `properties`'
    unit. Of labels it has `mean` and `std` for each output, in their order; outputs for classes are
    logits, of which `calibration` makes probabilities (slope, intercept; null: as they are).
    """
    units = {p.name: p.unit for p in spec.properties}
    if spec.task == "property":
        scaling = [spec.scaling.get(p.name) for p in spec.properties]
        unscale: dict[str, Any] = {
            "kind": spec.extra["kind"],
            "mean": [s.mean if s else 0.0 for s in scaling],
            "std": [s.std if s else 1.0 for s in scaling],
            "calibration": spec.extra.get("calibration"),
        }
    else:
        own = spec.scaling[spec.properties[0].name]
        per_atom = {str(z): float(value) for z, value in enumerate(shares(spec)) if value}
        unscale = {"per_atom": per_atom, "mean": own.mean, "std": own.std}
        units["pos"] = "Å"
    known_entry = spec.entry.partition(".")[0] in registry.entries()
    return {
        "entry": spec.entry,
        "weights_sha256": sha256,
        "batch_shape": spec.batch_shape.model_dump(),
        "properties": [p.model_dump() for p in spec.properties],
        "units": {"scaled": "1", **units},
        "unscale": unscale,
        "spec": spec.model_dump(mode="json"),
        "card": registry.card(spec.entry).as_dict() if known_entry else None,
    }


def example_graphs(spec: Spec) -> Batch:
    """One batch of the trained shape, of made-up graphs in the categories that the model knows."""
    shape = FixedSize(**spec.batch_shape.model_dump())
    rng = np.random.default_rng(0)
    size = min(9, shape.nodes - 1)
    count = max(1, min((shape.nodes - 1) // size, shape.edges // (2 * size), shape.graphs - 1))
    # Chains, each bond both ways, sorted by destination, then source.
    ends = sorted((j, i) for i in range(size) for j in (i - 1, i + 1) if 0 <= j < size)
    ends.sort(key=lambda pair: (pair[1], pair[0]))
    edges = count * len(ends)
    atoms, bonds = (
        np.stack([rng.integers(0, values, rows) for values in sizes], 1)
        for sizes, rows in (
            (spec.arguments["atom_categories"], count * size),
            (spec.arguments["bond_categories"] or (1,), edges),
        )
    )
    store = make_store(
        node_ptr=np.arange(count + 1) * size,
        node={"atom": atoms.astype(np.uint8)},
        graph={},
        edge={
            "src": np.tile([j for j, _ in ends], count),
            "dst": np.tile([i for _, i in ends], count),
            **({"bond": bonds.astype(np.uint8)} if spec.arguments["bond_categories"] else {}),
        },
        edge_ptr=np.arange(count + 1) * len(ends),
    )
    return fill_batch(store=store, graphs=np.arange(count), shape=shape, cutoff=None)


def example_batch(spec: Spec) -> Batch:
    """One batch of the trained shape, of small molecules that ASE knows and the model has seen."""
    from ase import Atoms
    from ase.collections import g2

    shape = FixedSize(**spec.batch_shape.model_dump())
    cutoff = float(spec.arguments["cutoff"])
    chosen: list[Molecule] = []
    nodes = edges = 0
    for name in g2.names:
        atoms: Atoms = g2[name]
        size = len(atoms)
        pairs = size * (size - 1)  # no molecule here is wider than any cutoff in use
        fits = shape.holds(nodes=nodes + size, edges=edges + pairs, graphs=len(chosen) + 1)
        if size > 1 and fits and set(atoms.symbols) <= set(spec.elements):
            chosen.append((atoms.numbers, atoms.positions))
            nodes, edges = nodes + size, edges + pairs
    if not chosen:
        raise RequestError(f"no small molecule of the elements {' '.join(spec.elements)} is known")
    store = molecule_store(chosen, dtype=np.float32)
    return fill_batch(store=store, graphs=np.arange(len(store)), shape=shape, cutoff=cutoff)
