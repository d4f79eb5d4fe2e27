"""Where a training step's time goes: matrix products against the peak, kernels, the rest.

Recorded on one core, one pack after the other: then every operator's time is its own, and shares
are those of a lane. How the products stand to the peak of all cores is told of the whole step.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from zoo.bench.machine import peaks
from zoo.bench.sides import Side

PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
_MAKING, _STEP = "zoo bench: batch making", "zoo bench: step"


def product_flops(side: Side) -> int:
    """Floating-point operations of the matrix products of one step, forward and backward."""
    from torch.utils.flop_counter import FlopCounterMode

    packs, _ = next(side.groups)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the counter sees its own thread only: no lanes
    try:
        with FlopCounterMode(display=False) as counter:
            side.step(packs)
    finally:
        torch.set_num_threads(threads)
    return int(counter.get_total_flops())


def break_down(side: Side, *, seconds: float = 0.5, steps: int = 20) -> dict[str, Any]:
    """Times in ms and shares of one step, batch making included, and the machine's peaks.

    `seconds` goes into each peak. Recording costs time of its own: it lands in the rest.
    """
    best = peaks(seconds=seconds)
    peak = "bf16_gflops" if side.settings.precision == "bf16" else "float32_gflops"
    side.run(seconds=0, steps=steps)
    whole_ms = statistics.median(
        a + b for a, b in zip(side.making_ms[-steps:], side.step_ms[-steps:], strict=True)
    )
    graphs = statistics.fmean(side.graphs[-steps:])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        core = peaks(seconds=seconds)
        flops = product_flops(side)
        side.run(seconds=0, steps=3)
        with profile(activities=[ProfilerActivity.CPU]) as recorded:
            for _ in range(steps):
                with record_function(_MAKING):
                    packs, _ = next(side.groups)
                with record_function(_STEP):
                    side.step(packs)
    finally:
        torch.set_num_threads(threads)
    ms, kernels, others = _add_up(recorded.events() or [], steps)
    total = ms["total"]
    products, ideal = ms["products"], flops / best[peak] / 1e6
    known = products + ms["optimiser"] + ms["making"] + sum(kernels.values())
    largest = sorted(others.items(), key=lambda item: -item[1])[:6]
    return {
        "peaks": best,
        "peaks_one_core": core,
        "step_ms": whole_ms,
        "graphs_per_step": graphs,
        "products_gflop": flops / 1e9,
        "products_ms_at_peak": ideal,
        "products_share_at_peak": ideal / whole_ms,
        "graphs_per_s_if_products_were_all": graphs / ideal * 1e3 if ideal else None,
        "one_core": {
            "step_ms": total,
            "products_ms": products,
            "products_share": products / total,
            "products_of_peak": flops / core[peak] / 1e6 / products,
            "kernels_ms": kernels,
            "kernels_share": sum(kernels.values()) / total,
            "batch_making_share": ms["making"] / total,
            "optimiser_share": ms["optimiser"] / total,
            "rest_share": max(0.0, total - known) / total,
            "rest_largest_ms": dict(largest),
        },
    }


def _add_up(events: Any, steps: int) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """ms per step: of the parts, of each of our kernels, and of each other operator by itself."""
    parts = dict.fromkeys(("total", "making", "optimiser", "products"), 0.0)
    kernels: dict[str, float] = defaultdict(float)
    others: dict[str, float] = defaultdict(float)
    each = 1 / 1e3 / steps  # from µs in all
    for event in events:
        name, whole, own = event.name, event.cpu_time_total * each, event.self_cpu_time_total * each
        if name in (_MAKING, _STEP):
            parts["total"] += whole
        if name == _MAKING:
            parts["making"] += whole
        elif name.startswith("Optimizer.step#"):
            parts["optimiser"] += whole
        elif name in PRODUCTS:
            parts["products"] += own
        elif name.startswith(("zoo::", "aten::")) and not _inside(event):
            if name.startswith("zoo::"):
                kernels[name] += whole
            else:
                others[name] += own
    return parts, dict(sorted(kernels.items())), others


def _inside(event: Any) -> bool:
    """Whether an operator was called by one of our kernels, the optimiser or batch making."""
    parent = event.cpu_parent
    while parent is not None:
        if parent.name.startswith(("zoo::", "Optimizer.step#", _MAKING)):
            return True
        parent = parent.cpu_parent
    return False


def line(parts: dict[str, Any]) -> str:
    """The breakdown for a reader."""
    core = parts["one_core"]
    return (
        f"matrix products at the measured peak would take {parts['products_share_at_peak']:.0%} of "
        f"the step; on one core they take {core['products_share']:.0%} of it, at "
        f"{core['products_of_peak']:.0%} of its peak; own kernels {core['kernels_share']:.0%}, "
        f"optimiser {core['optimiser_share']:.0%}, batch making {core['batch_making_share']:.0%}, "
        f"the rest (activations, sums, dispatch) {core['rest_share']:.0%}"
    )
