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

with {versions}.

Every name is here that `torch_geometric.nn` exports from `conv`, `aggr`, `norm`, `pool`, `unpool`,
`dense`, `functional` and `kge`, and itself; the models and functions below are those that Graphcore
documents besides. What can't be tried has the reason instead. Each layer is built with small sizes
and called with one padded batch of {nodes} nodes ({rings} of them real), {edges} edges and {graphs}
graphs, and with the sizes that it takes: `dim_size`, `batch_size`, `size`, `max_num_elements`.

| column | says that the layer |
|---|---|
| eager | runs, forward and backward |
| export | is one graph of fixed shapes to `torch.export` |
| compile | goes through `torch.compile`, as below, forward and backward |
| IPU | holds only what PopTorch 3.4 lowers, by our static rules |
| documented | is in Graphcore's table, tests or examples (and on which terms) |

`torch.compile` is asked with `fullgraph=True, dynamic=False` and the backend `aot_eager`. It lets
shapes through that depend on values: it says yes to some layers that aren't of fixed shape.

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
                (f"`{row['name']}`", _SAID[row["ipu"]], _STATUS[row["documented"]], why(row))
                for row in rows
                if row["agrees"] is False
            ],
        ),
    ]
    for category in dict.fromkeys(row["category"] for row in rows):
        head = ("layer", "eager", "export", "compile", "IPU", "documented", "note")
        made = [_with_terms(row) for row in rows if row["category"] == category]
        parts += [f"## {category}\n", _table(head, made)]
    return "\n".join(parts).rstrip("\n") + "\n"


def cells(row: Mapping[str, Any]) -> list[str]:
    """A row of a table: name, four verdicts, the documented status, a note."""
    built = row["built_with"]
    said = ["add_self_loops=False"] if built.get("add_self_loops") is False else []
    said += [row["reason"]] if row["reason"] else []
    said += ["refused by PyG's disable_dynamic_shapes"] if row["refused_by_pyg"] else []
    said += ["differs from what is documented"] if row["agrees"] is False else []
    verdicts = [_SAID[row[verdict]] for verdict in VERDICTS]
    return [row["name"], *verdicts, _STATUS[row["documented"]], "; ".join(said)]


def _with_terms(row: Mapping[str, Any]) -> list[str]:
    """A row of the page, which has room for the terms that the documented status holds on."""
    name, *verdicts, status, note = cells(row)
    terms = row["constraints"].replace("requires:", "").replace(",", ", ")
    return [f"`{name}`", *verdicts, f"{status} ({terms})" if terms else status, note]


def notes(found: Mapping[str, Any]) -> list[str]:
    """What a reader has to know of the verdicts, the versions first."""
    held = ", ".join(found["versions"]["extensions"]) or "none"
    return [
        f"made with {_versions(found)}",
        "The IPU's verdicts are checked statically against facts about PopTorch 3.4; nothing was "
        "run on an IPU.",
        "Layers with the argument add_self_loops are built with add_self_loops=False: PyG drops "
        "the self-loops there are before it adds any, and their number depends on values. Put "
        "them into the data.",
        "Aggregations that want a sorted index assert it by reading values; the IPU's verdict is "
        "without that, as PopTorch Geometric takes the assertion out.",
        f"PyG's extensions here: {held}. Layers that need another aren't tried.",
    ]


def why(row: Mapping[str, Any]) -> str:
    """Why a verdict differs from the documented status."""
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
