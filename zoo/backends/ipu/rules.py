"""What PopTorch 3.4 makes of an operator and its arguments: facts read in its source, not run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from zoo.backends.findings import Kind

OPERATORS = Path(__file__).with_name("operators.tsv")


class Verdict(NamedTuple):
    """Why an operator can't go (`error`) or goes with a condition."""

    kind: Kind
    error: bool
    says: str
    instead: str = ""


Arguments = Mapping[str, Any]
"""An operator's arguments by their names in its schema; tensors may be fake."""

# In-place forms that have no other: their names end in "_" in the table too.
_ONLY_IN_PLACE = {"copy_", "normal_", "uniform_", "random_", "exponential_"}
# Names that a traced graph has for what PopTorch knows by another, or deals with before lowering.
_ALIASES = {
    "_to_copy": "to",
    "_unsafe_index": "index",
    "_unsafe_index_put": "index_put",
    "_index_put_impl": "index_put",
    "lift_fresh_copy": "clone",
    "fill": "full_like",
    "zero": "zeros_like",
    "native_dropout": "dropout",
    "_native_batch_norm_legit": "batch_norm",
    "_native_batch_norm_legit_functional": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "_safe_softmax": "_softmax",
    "sym_size": "size",
    "divide": "div",
    "multiply": "mul",
    "new_empty": "empty",
    "empty_like": "zeros_like",
    # What a CPU makes of operators that PopTorch takes whole: unsafe_chunk (in gru_cell), lstm, and
    # torch.where with a number.
    "unsafe_split": "unsafe_chunk",
    "mkldnn_rnn_layer": "lstm",
    "scalar_tensor": "full",
}
# Of those spellings, the ones that torch 2.0.1 has as well.
_SPELT_IN_TORCH_2_0 = {
    *("_to_copy", "_index_put_impl", "fill", "zero", "sym_size", "divide", "multiply"),
    *("new_empty", "empty_like", "lift_fresh_copy", "unsafe_split", "mkldnn_rnn_layer"),
    *("_native_batch_norm_legit", "_native_batch_norm_legit_functional", "scalar_tensor"),
}
_BEFORE_LOWERING = {"alias", "empty", "empty_strided", "detach", "lift_fresh"}
_SHAPES = {
    "nonzero": "torch.where(mask, x, other)",
    "nonzero_numpy": "torch.where(mask, x, other)",
    "masked_select": "torch.where(mask, x, 0) and a sum of the mask where a mean is wanted",
    "unique": "ids that are made unique before the batch is built",
    "_unique": "ids that are made unique before the batch is built",
    "_unique2": "ids that are made unique before the batch is built",
    "unique_dim": "ids that are made unique before the batch is built",
    "unique_consecutive": "ids that are made unique before the batch is built",
    "unique_dim_consecutive": "ids that are made unique before the batch is built",
    "repeat_interleave": "index_select with an index that the batch brings along",
}
_INSTEAD = {
    "index_add": "scatter_add with the index expanded to the rows, or index_reduce",
    "index_copy": "torch.where, or scatter with unique rows",
    "masked_scatter": "torch.where",
    "nan_to_num": "torch.where(torch.isnan(x), value, x)",
    "isfinite": "a bound: torch.abs(x) < limit",
    "isinf": "a bound: torch.abs(x) < limit",
    "searchsorted": "torch.bucketize",
    "tril": "a constant mask and torch.where",
    "triu": "a constant mask and torch.where",
    "logaddexp": "torch.maximum(a, b) + log1p(exp(-abs(a - b)))",
    "histc": "torch.bincount with minlength",
    "kthvalue": "torch.topk",
    "take": "gather on the flattened tensor",
    "segment_reduce": "scatter_reduce",
    "as_strided": "slices, selects and transposes",
    "slice_scatter": "torch.cat of the parts",
    "select_scatter": "torch.where with a constant mask",
    "diagonal": "x * eye, summed",
}
_READS = {"_local_scalar_dense", "item", "is_nonzero", "equal"}


@functools.cache
def operators() -> dict[str, frozenset[str]]:
    """The operators with a lowering, and the names torch 2.0.1 has for each."""
    known = {}
    for line in OPERATORS.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, forms = line.partition("\t")
            known[name] = frozenset(forms.split())
    return known


def base_name(operator: str) -> str:
    """`index_put` of `index_put_.default`: as the table has it."""
    name = operator.partition(".")[0]
    if name.endswith("_") and not name.endswith("__") and name not in _ONLY_IN_PLACE:
        name = name[:-1]
    return _ALIASES.get(name, name)


def judge(operator: str, arguments: Arguments) -> list[Verdict]:
    """What is to be said of one call of an ATen operator (`add.Tensor`); nothing where it goes."""
    name = base_name(operator)
    if name in _READS:
        says = "a tensor's value is read on the host (.item(), float(), bool()) within the step"
        return [Verdict("host-read", True, says, "keep it a tensor: torch.where, or pass it in")]
    if name in _SHAPES and not (name == "repeat_interleave" and _constant_repeats(arguments)):
        says = f"the shape of {name}'s result depends on values"
        return [Verdict("data-dependent-shape", True, says, _SHAPES[name])]
    if name.endswith("_backward"):
        says = "derivatives within the step: PopTorch differentiates the whole step once, itself"
        return [
            Verdict("autograd-inside", True, says, "a head that predicts them, or their formula")
        ]
    if (rule := _RULES.get(name)) and (found := rule(arguments)):
        return [found]
    if name not in operators() and name not in _BEFORE_LOWERING:
        instead = _INSTEAD.get(name, "")
        return [Verdict("missing-operator", True, f"PopTorch 3.4 can't lower {name}", instead)]
    if operator.endswith("out") and operator.partition(".")[2]:
        says = "an out= argument: whether it reaches the whole of what it is a part of isn't known"
        return [Verdict("constrained-operator", False, says, "the result itself, and torch.cat")]
    return []


def in_torch_2_0(operator: str) -> bool:
    """Whether torch 2.0.1 has this very operator and overload (the table leaves out= forms out)."""
    name, _, overload = operator.partition(".")
    if name.removesuffix("_") in _SPELT_IN_TORCH_2_0 or overload.endswith("out"):
        return True
    held = operators().get(base_name(operator)) or operators().get(operator.partition(".")[0])
    return held is None or operator in held or not held


def _constant_repeats(arguments: Arguments) -> bool:
    return not isinstance(arguments.get("repeats"), Tensor)


def _index(a: Arguments) -> Verdict | None:
    indices = [i for i in a["indices"] if i is not None]
    if any(i.dtype in (torch.bool, torch.uint8) for i in indices):
        says = "reading by a mask: the shape of the result depends on values"
        instead = "torch.where(mask, x, 0), and the mask where a count is wanted"
        return Verdict("data-dependent-shape", True, says, instead)
    if len(indices) > 1 and len({i.shape for i in indices}) > 1:
        says = (
            "several index tensors of different shapes: only the highest-ranked one's is looked at"
        )
        return Verdict("constrained-operator", True, says, "expand them to one shape first")
    return None


def _index_put(a: Arguments) -> Verdict | None:
    if a.get("accumulate"):
        says = "index_put(accumulate=True) overwrites in PopTorch: accumulate is never read there"
        return Verdict("index-put-accumulate", True, says, "scatter_add with the index expanded")
    indices = [i for i in a["indices"] if i is not None]
    values = a["values"]
    masks = [i for i in indices if i.dtype in (torch.bool, torch.uint8)]
    if masks and values.numel() not in (1, a["self"].numel()):
        says = "assigning packed values through a mask depends on how many are True"
        return Verdict("data-dependent-shape", True, says, "torch.where(mask, value, x)")
    if len(indices) > 1:
        return Verdict(
            "constrained-operator", False, "several indices become one index per element: memory"
        )
    return None


def _gather(a: Arguments) -> Verdict | None:
    x, dim, index = a["self"], a["dim"], a["index"]
    for axis in range(index.dim()):
        if axis != dim % max(x.dim(), 1) and index.shape[axis] > x.shape[axis]:
            says = f"gather's index is longer than its input along dim {axis}"
            return Verdict("constrained-operator", True, says, "index_select for whole rows")
    if not all(s == 0 for s in index.stride()[1:]):
        return Verdict(
            "constrained-operator",
            False,
            "gather bakes an offset for each element of its input",
            "index_select for whole rows",
        )
    return None


def _when(wrong: Callable[[Arguments], bool], says: str, instead: str = "") -> Any:
    """A rule that refuses some arguments."""

    def rule(a: Arguments) -> Verdict | None:
        return Verdict("constrained-operator", True, says, instead) if wrong(a) else None

    return rule


def _note(wrong: Callable[[Arguments], bool], says: str, instead: str = "") -> Any:
    """A rule that accepts some arguments with a word."""

    def rule(a: Arguments) -> Verdict | None:
        return Verdict("constrained-operator", False, says, instead) if wrong(a) else None

    return rule


def _unsigned(a: Arguments) -> bool:
    return any(isinstance(v, Tensor) and v.dtype == torch.uint8 for v in a.values())


def _layers(a: Arguments) -> bool:
    return a.get("num_layers", 1) != 1 or bool(a.get("bidirectional")) or bool(a.get("dropout"))


def _no_affine(a: Arguments) -> bool:
    return a.get("weight") is None


def _class_weight(a: Arguments) -> bool:
    return a.get("weight") is not None


def _slice(a: Arguments) -> Verdict | None:
    if (a.get("step") or 1) < 1:
        return Verdict("constrained-operator", True, "slices need a step of at least 1")
    x, dim = a["self"], a.get("dim") or 0
    start, end = a.get("start") or 0, a.get("end")
    length = x.shape[dim]
    start = max(start + length, 0) if start < 0 else min(start, length)
    end = length if end is None else max(end + length, 0) if end < 0 else min(end, length)
    if end <= start:
        return Verdict("constrained-operator", True, "an empty slice: there are no empty tensors")
    return None


def _cdist(a: Arguments) -> Verdict | None:
    x, y = a.get("x1"), a.get("x2")
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        megabytes = 4e-6 * x.shape[-2] * y.shape[-2] * x.shape[-1]
        says = f"cdist holds every difference at once: {megabytes:,.3g} MB here"
        return Verdict("constrained-operator", False, says, "edges found before the batch is built")
    return None


_REDUCTIONS = ("sum", "add", "mean", "amax", "amin", "prod", "multiply")
_NORMS = "PopTorch documents this norm with affine weights only; padded rows enter its statistics"
_RULES: dict[str, Callable[[Arguments], Verdict | None]] = {
    "index": _index,
    "index_put": _index_put,
    "gather": _gather,
    "slice": _slice,
    "cdist": _cdist,
    "_cdist_forward": _cdist,
    "scatter": _when(
        lambda a: a.get("reduce", "sum") not in _REDUCTIONS, "scatter knows no such reduction"
    ),
    "scatter_reduce": _when(
        lambda a: a.get("reduce") not in _REDUCTIONS, "scatter_reduce knows no such reduction"
    ),
    "bincount": _when(
        lambda a: not a.get("minlength"),
        "the length of bincount's result depends on values",
        "minlength=, which is then also the greatest length",
    ),
    "one_hot": _when(
        lambda a: a.get("num_classes", -1) < 0, "one_hot needs num_classes", "num_classes="
    ),
    "topk": _when(lambda a: a.get("sorted") is False, "topk is always sorted there"),
    "embedding": _when(
        lambda a: bool(a.get("sparse") or a.get("scale_grad_by_freq")),
        "embedding takes neither sparse nor scale_grad_by_freq",
    ),
    "dropout": _note(
        lambda a: bool(a.get("train", True)), "dropout's p and mode are fixed when compiled"
    ),
    "gelu": _when(
        lambda a: a.get("approximate", "none") not in ("none", "tanh"), "gelu's approximation"
    ),
    "batch_norm": _note(_no_affine, _NORMS),
    "layer_norm": _note(_no_affine, _NORMS),
    "native_layer_norm": _note(_no_affine, _NORMS),
    "group_norm": _note(_no_affine, _NORMS),
    "instance_norm": _note(_no_affine, _NORMS),
    "cross_entropy_loss": _when(_class_weight, "class weights of a loss", "weights per row"),
    "nll_loss_nd": _when(_class_weight, "class weights of a loss", "weights per row"),
    "nll_loss_forward": _when(_class_weight, "class weights of a loss", "weights per row"),
    "lstm": _when(_layers, "one layer in one direction, no dropout"),
    "gru": _when(_layers, "one layer in one direction, no dropout"),
    "bitwise_and": _when(_unsigned, "bitwise operators take bool and signed integers"),
    "bitwise_or": _when(_unsigned, "bitwise operators take bool and signed integers"),
    "bitwise_xor": _when(_unsigned, "bitwise operators take bool and signed integers"),
    "bitwise_not": _when(_unsigned, "bitwise operators take bool and signed integers"),
}


def named(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a call by the names in its schema, defaults filled in."""
    names = [argument.name for argument in schema.arguments]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    for argument in schema.arguments:
        if argument.name not in given and argument.has_default_value():
            given[argument.name] = argument.default_value
    return given


def narrowing(value: Tensor) -> Verdict | None:
    """Whether a 64-bit or complex tensor survives being 32 bits wide; of fake ones, only the dtype
    is looked at.
    """
    value = value.detach()
    if value.dtype.is_complex:
        return Verdict("dtype", True, "complex numbers aren't supported", "two real tensors")
    if value.dtype not in (torch.int64, torch.float64) or value.numel() == 0 or value.is_meta:
        return None
    if value.dtype == torch.int64:
        low, high = int(value.min()), int(value.max())
        if low < -(2**31) or high >= 2**31:
            says = f"values from {low} to {high} don't fit in the 32 bits that int64 has there"
            return Verdict("wide-value", True, says, "smaller numbers, or two of them")
        return None
    finite = value[value.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    if largest > torch.finfo(torch.float32).max:
        says = f"a float64 value of {largest:.2g} is infinite in the float32 that it becomes there"
        return Verdict("wide-value", True, says, "other units, or a logarithm")
    return Verdict("dtype", False, "float64 is computed in float32 there", "float32 from the start")
