"""What a check finds: a thing in a backend's way, where, and what to write instead."""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Kind = Literal[
    "data-dependent-shape",
    "host-read",
    "branch-on-value",
    "index-put-accumulate",
    "wide-value",
    "missing-operator",
    "constrained-operator",
    "dtype",
    "not-exportable",
    "autograd-inside",
    "memory",
]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`level` error: the model can't go. `operator` is ATen's name, `file` and `line` the model's,
    None where nothing of the model was on the stack; `count` how often it was met there.
    """

    kind: Kind
    level: Literal["error", "warning"]
    says: str
    instead: str = ""
    operator: str = ""
    file: str | None = None
    line: int | None = None
    count: int = 1

    @property
    def code(self) -> str:
        """The line of source that this is about."""
        if self.file is None or self.line is None:
            return ""
        return linecache.getline(self.file, self.line).strip()

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "code": self.code}


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Findings with those of one kind, operator and place counted as one, errors first."""
    held: dict[tuple[Any, ...], Finding] = {}
    for one in findings:
        key = (one.kind, one.operator, one.file, one.line)
        known = held.get(key)
        count = one.count + (known.count if known else 0)
        held[key] = replace(known or one, count=count)
    return sorted(held.values(), key=lambda f: (f.level != "error", f.file or "", f.line or 0))
