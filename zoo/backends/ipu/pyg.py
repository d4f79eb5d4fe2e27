"""What PopTorch Geometric 3.4 changes of PyG while it compiles, as far as a check can do so too."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from zoo.backends.findings import Finding
from zoo.backends.graph import first_line, is_of_a_model

_MODE = "disable_dynamic_shapes"


@contextlib.contextmanager
def as_poptorch_has_it() -> Iterator[None]:
    """Without the assertion that an aggregation's index is sorted, which reads values.

    PopTorch Geometric also replaces the forwards of ClusterGCNConv, HeteroLinear, InstanceNorm and
    MFConv, and the neighbour searches; those stay as PyG has them here.
    """
    if "torch_geometric.nn" not in sys.modules:
        yield
        return
    from torch_geometric.nn import Aggregation

    with mock.patch.object(Aggregation, "assert_sorted_index", lambda self, index: None):
        yield


def refusal(run: Callable[[], Any]) -> Finding | None:
    """What PyG's own mode for fixed shapes has against a run: a size that isn't given. PopTorch
    Geometric switches it on. Whatever else goes wrong in the run is for others to tell.
    """
    if "torch_geometric" not in sys.modules:
        return None
    from torch_geometric import experimental

    try:
        with experimental.experimental_mode(_MODE):
            run()
    except Exception as error:
        if "Dynamic shapes disabled" not in str(error):
            return None
        frames = [
            (frame.f_code.co_filename, line)
            for frame, line in traceback.walk_tb(error.__traceback__)
            if is_of_a_model(frame.f_code.co_filename)
            and frame.f_code.co_filename != experimental.__file__
        ]
        file, line = frames[-1] if frames else (None, None)
        return Finding(
            kind="data-dependent-shape",
            level="error",
            says=f"PyG's {_MODE}: {first_line(error).partition('. ')[2]}",
            instead="pass the size: it is fixed",
            file=file,
            line=line,
        )
    return None
