"""Which code ran: versions of the packages that decide a result, and the git commit."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from pathlib import Path

_PACKAGES = {
    "zoo": "gnn-zoo",
    "torch": "torch",
    "numba": "numba",
    "numpy": "numpy",
    "mlflow": "mlflow",
}


def versions() -> dict[str, str]:
    """Versions of zoo, python, torch, numba, numpy and mlflow, none of which it imports.

    `git` is the commit of zoo's own checkout, with `-dirty` when tracked files differ from it;
    missing where zoo was installed from a wheel. A package that is not installed is left out.
    """
    found = {"python": platform.python_version()}
    for name, distribution in _PACKAGES.items():
        try:
            found[name] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    commit = git_commit(Path(__file__).resolve().parents[2])
    return {**found, "git": commit} if commit else found


def git_commit(root: Path) -> str | None:
    """The commit checked out at `root`, `-dirty` if tracked files changed; None if no checkout.

    `root` must be the top of the checkout: an environment inside somebody's own repository would
    otherwise report that repository's commit as zoo's.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    commit = _git(root, "rev-parse", "HEAD")
    if not top or not commit or Path(top).resolve() != root.resolve():
        return None
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}-dirty" if changed else commit


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
