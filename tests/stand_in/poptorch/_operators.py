"""Which operators the IPU knows, and how names seen on a CPU map to the names that it knows.

The table beside this file holds ATen base names and what PopTorch 3.4 (for torch 2.0.1) does with
them. A mode sees what reaches the CPU's kernels, which isn't quite what would reach the IPU's:

* In-place `foo_` counts as `foo`, except the few that only exist in place, and `zero_`, `fill_`.
* A composite that PopTorch intercepts whole (einsum, one_hot, gru, kl_div, ...) reaches the CPU as
  its parts. Its name is known from the call in Python, and its parts then aren't looked at.
* Any other composite is judged by its parts, as PopTorch would.
* Spellings that only newer versions of torch, torch.export or the CPU use are mapped by `ALIASES`.
"""

from __future__ import annotations

from pathlib import Path

IN_PLACE_ONLY = {"copy_", "normal_", "uniform_", "random_", "exponential_"}

ALIASES = {
    # torch.export and newer torch
    "_to_copy": "to",
    "copy": "copy_",
    "fill": "full_like",
    "fill_": "full_like",
    "lift": "clone",
    "lift_fresh": "detach",
    "lift_fresh_copy": "clone",
    "sym_size": "size",
    "zero": "zeros_like",
    "zero_": "zeros_like",
    # what factories and casts are made of on the CPU
    "empty_like": "empty",
    "new_empty": "empty",
    "new_empty_strided": "empty_strided",
    "rand_like": "rand",
    "randn_like": "randn",
    "randint_like": "randint",
    "scalar_tensor": "full",
    # what the CPU makes of operators that PopTorch knows under another name
    "_batch_norm_with_update": "native_batch_norm",
    "_embedding_bag_forward_only": "_embedding_bag",
    "_euclidean_dist": "cdist",
    "_index_put_impl": "index_put",
    "_native_batch_norm_legit": "native_batch_norm",
    "_native_batch_norm_legit_no_training": "native_batch_norm",
    "_safe_softmax": "_softmax",
    "_scaled_dot_product_flash_attention_for_cpu": "bmm",
    "_weight_norm_interface": "_weight_norm",
    "unsafe_split": "split",
    "unsafe_split_with_sizes": "split_with_sizes",
}


def _read_table():
    lines = Path(__file__).with_name("operators.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t") for line in lines if line and not line.startswith("#"))


TABLE = _read_table()


def base_name(function):
    """Base name of an operator or of a function of torch's: `aten.add_.Tensor` is `add_`.

    A namespace other than ATen's stays: `zoo::propagate`.
    """
    schema = getattr(function, "_schema", None)
    name = schema.name if schema is not None else getattr(function, "_qualified_op_name", None)
    if name is None:
        return getattr(function, "__name__", type(function).__name__)
    return name[len("aten::") :] if name.startswith("aten::") else name


def out_of_place(name):
    """`foo` for `foo_`; dunder names and those that only exist in place stay."""
    if name in IN_PLACE_ONLY or not name.endswith("_") or name.endswith("__"):
        return name
    return name[:-1]


def status(name):
    """What the table says of a base name: supported, constant-only, error or unsupported."""
    for spelling in (name, out_of_place(name)):
        spelling = ALIASES.get(spelling, spelling)
        if spelling in TABLE:
            return TABLE[spelling]
        if spelling.endswith("_copy") and spelling[: -len("_copy")] in TABLE:
            return TABLE[spelling[: -len("_copy")]]
    return "unsupported"


def listed(name):
    """Whether PopTorch takes a call of this name whole, without looking at its parts."""
    return status(name) == "supported"


def refused(name):
    """Whether the table lists this name as one that has no lowering."""
    return TABLE.get(name, TABLE.get(out_of_place(name), "")) in ("error", "unsupported")
