"""Indexed writes with the IPU's results where they differ from the CPU's.

* `index_put(accumulate=True)` overwrites: the argument is never read.
* Writes to an index out of range are dropped, also to a negative one.
* Assignment through a boolean mask is a where(): the value must broadcast to the whole tensor.

Each function takes a call's arguments and returns its result, or NotImplemented where the CPU does
the same as the IPU.
"""

from __future__ import annotations

import torch

from ._errors import Error

INDEX_PUT = ("index_put", "index_put_", "_index_put_impl_")
SCATTER = ("scatter", "scatter_add", "scatter_reduce")
MASKS = (torch.bool, torch.uint8)


def write(trace, name, args, kwargs):
    """The result of the call on an IPU, or NotImplemented where nothing is special about it."""
    if name in INDEX_PUT:
        call = _bound(("self", "indices", "values"), args, kwargs)
        return _index_put(trace, name, call["self"], tuple(call["indices"]), call["values"])
    if name == "__setitem__":
        target, key, value = args
        keys = key if isinstance(key, tuple) else (key,)
        if all(isinstance(k, torch.Tensor) and k.dim() for k in keys):
            return _index_put(trace, "index_put_", target, keys, value)
    plain = name[:-1] if name.endswith("_") else name
    if plain in SCATTER:
        return _scatter(trace, name, plain, args, dict(kwargs))
    return NotImplemented


def _bound(names, args, kwargs):
    call = dict(zip(names, args))
    call.update(kwargs)
    return {"self": call.pop("input", None), **call}


def _index_put(trace, name, target, indices, values):
    with trace.having(internal=True):
        values = torch.as_tensor(values).to(target.dtype)
        if len(indices) == 1 and indices[0] is not None and indices[0].dtype in MASKS:
            new = _where(target, indices[0], values)
        elif any(i is None or i.dtype in MASKS for i in indices):
            return NotImplemented
        else:
            kept, values = _in_range(target, indices, values)
            new = target.index_put(kept, values, accumulate=False)
        return target.copy_(new) if name.endswith("_") else new


def _where(target, mask, values):
    mask = mask.to(torch.bool).reshape(mask.shape + (1,) * (target.dim() - mask.dim()))
    try:
        fits = torch.broadcast_shapes(values.shape, target.shape) == target.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise Error(
            f"index_put with a boolean mask becomes where(): a value of shape "
            f"{tuple(values.shape)} doesn't broadcast to {tuple(target.shape)}"
        )
    return torch.where(mask, values, target)


def _in_range(target, indices, values):
    """The indices and values of the writes that stay, of those that land inside `target`."""
    indices = torch.broadcast_tensors(*indices)
    fine = torch.ones_like(indices[0], dtype=torch.bool)
    for size, index in zip(target.shape, indices):
        fine = fine & (index >= 0) & (index < size)
    if bool(fine.all()):
        return indices, values
    values = values.expand(indices[0].shape + target.shape[len(indices) :])
    return tuple(index[fine] for index in indices), values[fine]


def _scatter(trace, name, plain, args, kwargs):
    args = list(args)
    target = args.pop(0) if args else kwargs.pop("self", kwargs.pop("input", None))
    dim = args.pop(0) if args else kwargs.pop("dim")
    index = args.pop(0) if args else kwargs.pop("index")
    with trace.having(internal=True):
        size = target.size(dim)
        outside = (index < 0) | (index >= size)
        if not bool(outside.any()):
            return NotImplemented
        # What falls outside goes to a spare row, which is cut off again.
        padded = torch.cat([target, target.narrow(dim, 0, 1)], dim)
        index = torch.where(outside, torch.full_like(index, size), index)
        new = getattr(torch, plain)(padded, dim, index, *args, **kwargs).narrow(dim, 0, size)
        return target.copy_(new) if name.endswith("_") else new
