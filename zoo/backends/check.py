"""Whether a step can be compiled ahead of time by a backend, and which lines stand in the way."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from zoo.backends.findings import Finding, Kind, merged
from zoo.backends.graph import Step, first_line, innermost, place, quiet, told_place, trace
from zoo.backends.ipu import memory, rules
from zoo.backends.ipu.pyg import as_poptorch_has_it, refusal
from zoo.backends.ipu.source import operator_name
from zoo.backends.recording import Call, Recorder, parts, plain_attention, values
from zoo.errors import ZooError
from zoo.ops.dispatch import device_dropout, plain_torch

Target = Literal["ipu", "export", "inductor"]
TARGETS: tuple[Target, ...] = ("ipu", "export", "inductor")

# Kinds that show on real values alone; the rest is told from the whole graph where there is one.
_ON_VALUES: set[Kind] = {
    *("data-dependent-shape", "host-read", "branch-on-value", "index-put-accumulate"),
    *("wide-value", "dtype", "autograd-inside"),
}
# What stands in memory that nothing has been written to says nothing.
_UNWRITTEN = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
_BRANCHES = ("if ", "elif ", "while ", "assert ", "return bool(")


def check(
    *,
    module: nn.Module,
    step: Step,
    batch: Mapping[str, Tensor],
    backend: Target,
    training: bool,
) -> dict[str, Any]:
    """What `backend` makes of `step(module, batch)`; JSON-able but for `findings` (Finding).

    `ok` says that it goes; `operators` counts the ATen operators of the graph (None where there is
    no graph of fixed shapes). For `ipu` everything is told from facts about PopTorch 3.4; nothing
    was run there.
    """
    given: dict[str, Any] = {"module": module, "step": step, "batch": batch, "training": training}
    return check_each(**given, backends=(backend,))[backend]


def check_each(
    *,
    module: nn.Module,
    step: Step,
    batch: Mapping[str, Tensor],
    backends: Sequence[Target],
    training: bool,
) -> dict[Target, dict[str, Any]]:
    """What `check` says for each of several backends, which takes less than one after another."""
    found = {}
    was = module.training
    module.train(training)
    graphs: dict[bool, tuple[ExportedProgram | None, list[Finding]]] = {}
    for backend in backends:
        ipu = backend == "ipu"
        with contextlib.ExitStack() as stack:
            if ipu:
                stack.enter_context(as_poptorch_has_it())
                stack.enter_context(device_dropout())
            if ipu not in graphs:
                graphs[ipu] = _traced(module, step, batch, gradients=training)
            found[backend] = _judged(
                *(module, step, batch, graphs[ipu]), backend=backend, training=training
            )
    module.train(was)
    return found


def _judged(
    module: nn.Module,
    step: Step,
    batch: Mapping[str, Tensor],
    traced: tuple[ExportedProgram | None, list[Finding]],
    *,
    backend: Target,
    training: bool,
) -> dict[str, Any]:
    program, findings = traced[0], [*traced[1]]
    found: dict[str, Any] = {"backend": backend, "operators": None}
    if backend == "ipu":
        findings += _on_values(module, step, batch, whole=program is None)
        if program is not None:
            findings += _of_graph(program)
        if refused := refusal(lambda: step(module, dict(batch))):
            findings.append(refused)
    elif backend == "export":
        findings += [f for f in _on_values(module, step, batch, whole=False) if _stops_export(f)]
    else:
        findings = _by_compiling(module, step, batch, training=training)
    if program is not None:
        names = Counter(operator_name(n) for n in _calls(program))
        found["operators"] = dict(sorted(names.items()))
        if backend == "ipu":
            found["memory"] = memory.estimate(program, training=training)
            if not found["memory"]["fits"]:
                findings.append(_too_large(found["memory"]))
    found["findings"] = merged(_explained(findings))
    found["ok"] = not any(f.level == "error" for f in found["findings"])
    return found


def _traced(
    module: nn.Module, step: Step, batch: Mapping[str, Tensor], *, gradients: bool
) -> tuple[ExportedProgram | None, list[Finding]]:
    try:
        program = trace(module=module, step=step, batch=batch, gradients=gradients)
        # A shape that depends on values is a symbol in it; running the step tells which and where.
        return (None if _has_symbols(program) else program), []
    except ZooError as error:
        cause = error.__cause__ or error
        where = innermost(cause)
        return None, [
            Finding(
                kind="not-exportable",
                level="error",
                says=f"the step isn't one graph: {first_line(cause)}",
                file=where and where[0],
                line=where and where[1],
            )
        ]


def _explained(findings: list[Finding]) -> list[Finding]:
    """Without what the exporter stumbled over, where another finding says why and what to write."""
    known = {(f.file, f.line) for f in findings if f.kind in _ON_VALUES and f.level == "error"}
    return [f for f in findings if f.kind != "not-exportable" or (f.file, f.line) not in known]


def _has_symbols(program: ExportedProgram) -> bool:
    from torch.fx.experimental.symbolic_shapes import free_symbols

    return any(
        isinstance(value, Tensor | torch.SymInt | torch.SymFloat | torch.SymBool)
        and free_symbols(value)
        for value in (node.meta.get("val") for node in program.graph.nodes)
    )


def _on_values(
    module: nn.Module, step: Step, batch: Mapping[str, Tensor], *, whole: bool
) -> list[Finding]:
    """What shows when the step runs on the example; with `whole`, unknown operators too."""
    found: list[Finding] = []

    def keep(call: Call) -> None:
        for verdict in rules.judge(call.operator, call.arguments):
            if whole or verdict.kind in _ON_VALUES:
                found.append(_finding(verdict, call.operator, call.place))
        for result in call.results if call.operator.partition(".")[0] not in _UNWRITTEN else ():
            told = rules.narrowing(result)
            # Where it comes from is worth a finding, not all that it goes through.
            if told and not any(_same_kind(told, given) for given in call.tensors()):
                found.append(_finding(told, call.operator, call.place))

    for name, value in (*batch.items(), *module.named_parameters(), *module.named_buffers()):
        wide = rules.narrowing(value)
        if wide and wide.kind == "wide-value":
            found.append(_finding(wide._replace(says=f"{name}: {wide.says}"), "", None))
    try:
        with plain_torch(), plain_attention(), torch.enable_grad(), Recorder(keep):
            step(module, dict(batch))
    except Exception as error:
        where = innermost(error)
        found.append(
            Finding(
                kind="not-exportable",
                level="error",
                says=f"the step fails on its example: {first_line(error)}",
                file=where and where[0],
                line=where and where[1],
            )
        )
    return found


def _same_kind(told: rules.Verdict, given: Tensor) -> bool:
    before = rules.narrowing(given)
    return before is not None and before.kind == told.kind


def _of_graph(program: ExportedProgram) -> Iterator[Finding]:
    for node in _calls(program):
        target: Any = node.target
        operator = operator_name(node)
        if target.namespace != "aten":
            says = f"{operator} isn't an operator of torch's own"
            yield _finding(rules.Verdict("missing-operator", True, says), operator, place(node))
            continue
        called = rules.named(target._schema, values(node.args), values(node.kwargs))
        verdicts = rules.judge(operator, called)
        if any(v.kind == "missing-operator" for v in verdicts) and _falls_apart(target):
            # Unknown by this name, but torch takes it apart before PopTorch sees it.
            verdicts = [
                v for part in parts(node) for v in rules.judge(part.operator, part.arguments)
            ]
        elif not rules.in_torch_2_0(operator):
            says = f"torch 2.0.1, which PopTorch needs, has no {operator}"
            verdicts = [*verdicts, rules.Verdict("missing-operator", True, says)]
        for verdict in verdicts:
            yield _finding(verdict, operator, place(node))


def _falls_apart(target: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(
        target.name(), "CompositeImplicitAutograd"
    )


def _calls(program: ExportedProgram) -> Iterator[torch.fx.Node]:
    for node in program.graph.nodes:
        called = node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
        if called and not operator_name(node).startswith("_assert"):
            yield node


def _finding(verdict: rules.Verdict, operator: str, where: tuple[str, int] | None) -> Finding:
    made = Finding(
        kind=verdict.kind,
        level="error" if verdict.error else "warning",
        says=verdict.says,
        instead=verdict.instead,
        operator=operator,
        file=where and where[0],
        line=where and where[1],
    )
    if made.kind == "host-read" and made.code.startswith(_BRANCHES):
        return replace(
            made,
            kind="branch-on-value",
            says="a Python branch on a value: a compiled step takes one branch for ever",
            instead="torch.where(condition, a, b)",
        )
    return made


def _stops_export(finding: Finding) -> bool:
    kinds: set[Kind] = {"data-dependent-shape", "host-read", "branch-on-value"}
    return finding.kind in kinds


def _by_compiling(
    module: nn.Module, step: Step, batch: Mapping[str, Tensor], *, training: bool
) -> list[Finding]:
    """What torch.compile says of the step as one graph, without generating code."""
    import torch._dynamo

    torch._dynamo.reset()
    run = torch.compile(step, fullgraph=True, dynamic=False, backend="aot_eager")
    try:
        with quiet(), torch.set_grad_enabled(training):
            out = run(module, dict(batch))
            if training:
                first = out[0] if isinstance(out, list | tuple) else out
                first.sum().backward()
    except Exception as error:
        where = innermost(error) or told_place(str(error))
        return [
            Finding(
                kind="not-exportable",
                level="error",
                says=f"torch.compile needs more than one graph: {first_line(error)}",
                file=where and where[0],
                line=where and where[1],
            )
        ]
    finally:
        module.zero_grad(set_to_none=True)
    return []


def _too_large(found: Mapping[str, Any]) -> Finding:
    return Finding(
        kind="memory",
        level="error",
        says=f"about {found['total'] / 1e6:,.0f} MB, and an IPU has {memory.LIMIT / 1e6:,.0f}",
        instead="; or ".join(found["advice"]),
    )
