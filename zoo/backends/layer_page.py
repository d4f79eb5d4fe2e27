"""The verdicts on PyG's layers as a page of the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zoo.backends.layer_inputs import RINGS, SHAPE
from zoo.backends.layers import VERDICTS

_SAID = {True: "yes", False: "no", None: "-"}
_STATUS = {
    "supported": "yes",
    "not_supported": "no",
    "tbd": "tbd",
    "tested_not_listed": "in tests",
    "example_only": "in examples",
    None: "",
}
_INTRODUCTION = """\
# PyG's layers at fixed shape

Which layers of PyTorch Geometric go where every shape is fixed. Made by

```bash
zoo check --layers --docs docs/layers.md
```

with {versions}. Every name that PyG exports in its rooms of convolutions, aggregations, norms,
pooling and basic blocks is here, or has the reason why it can't be tried. Each is built with small
sizes and called with one padded batch of {nodes} nodes, {edges} edges and {graphs} graphs
({rings} real nodes), with the sizes that it takes (`dim_size`, `batch_size`, `size`,
`max_num_elements`, ...).

| column | says that the layer |
|---|---|
| eager | runs, forward and backward |
| export | is one graph of fixed shapes to `torch.export` |
| compile | goes through `torch.compile`, as below, forward and backward |
| IPU | holds only what PopTorch 3.4 lowers, by our static rules |
| documented | is supported by Graphcore's own table, or runs in its tests or examples |

`torch.compile` is asked with `fullgraph=True, dynamic=False` and the backend `aot_eager`. It lets
shapes through that depend on values, so it says yes to some layers that have no fixed shape.

{notes}
"""


def page(found: Mapping[str, Any]) -> str:
    """The result of `layers.coverage` in Markdown."""
    rows = found["layers"]
    parts = [
        _INTRODUCTION.format(
            versions=_versions(found),
            nodes=SHAPE.nodes,
            edges=SHAPE.edges,
            graphs=SHAPE.graphs,
            rings=sum(RINGS),
            notes="\n\n".join(notes(found)[1:]),
        ),
        "## Counts\n",
        _counts(found["summary"]),
        "## Where our verdict differs from what is documented\n",
        _table(
            ("layer", "IPU", "documented", "because"),
            [
                (f"`{row['name']}`", _SAID[row["ipu"]], _STATUS[row["documented"]], _why(row))
                for row in rows
                if row["agrees"] is False
            ],
        ),
    ]
    for category in dict.fromkeys(row["category"] for row in rows):
        head = ("layer", "eager", "export", "compile", "IPU", "documented", "note")
        made = [cells(row) for row in rows if row["category"] == category]
        parts += [f"## {category}\n", _table(head, [(f"`{c[0]}`", *c[1:]) for c in made])]
    return "\n".join(parts).rstrip("\n") + "\n"


def cells(row: Mapping[str, Any]) -> list[str]:
    """A row of a table: name, four verdicts, the documented status, a note."""
    built = row["built_with"]
    said = ["add_self_loops=False"] if built.get("add_self_loops") is False else []
    said += [row["reason"]] if row["reason"] else []
    said += [f"documented: {row['constraints']}"] if row["constraints"] else []
    said += ["refused by PyG's disable_dynamic_shapes"] if row["refused_by_pyg"] else []
    said += ["differs, see above"] if row["agrees"] is False else []
    verdicts = [_SAID[row[verdict]] for verdict in VERDICTS]
    return [row["name"], *verdicts, _STATUS[row["documented"]], "; ".join(said)]


def notes(found: Mapping[str, Any]) -> list[str]:
    """What a reader has to know of the verdicts, the versions first."""
    held = ", ".join(found["versions"]["extensions"]) or "none"
    return [
        f"made with {_versions(found)}",
        "The IPU's verdicts are checked statically against facts about PopTorch 3.4; nothing was "
        "run on an IPU.",
        "Layers with the argument add_self_loops are built with add_self_loops=False: adding them "
        "drops the loops there are, as many as the values say. Add them to the data.",
        "An aggregation's assertion that its index is sorted reads values; the IPU's verdict is "
        "without it, as PopTorch Geometric takes it out.",
        f"PyG's extensions here: {held}. Layers that need another aren't tried.",
    ]


def _why(row: Mapping[str, Any]) -> str:
    return str(row["explanation"] or "nobody has looked yet")


def _versions(found: Mapping[str, Any]) -> str:
    held = found["versions"]
    return f"torch {held['torch']} and torch_geometric {held['torch_geometric']}"


def _counts(summary: Mapping[str, Mapping[str, int]]) -> str:
    columns = list(summary["all"])
    return _table(
        ("", *columns),
        [(name, *(str(count[c]) for c in columns)) for name, count in summary.items()],
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)
