"""A measuring process: its answers, its errors, its end."""

from __future__ import annotations

import os
import sys

import pytest

import zoo
from zoo.bench.worker import Worker, environment
from zoo.errors import RequestError, ZooError

HANDLERS = """
import os, subprocess
from zoo.errors import RequestError

def serve(*, offset):
    print("a library's banner")
    if offset < 0:
        raise RequestError("no such offset")

    def refuse():
        raise RequestError("first line\\nsecond")

    def shout():
        subprocess.run(["echo", "noise of a child"])
        print("noise")
        return os.environ.get("SHOUT")

    return {
        "add": lambda a, b: a + b + offset,
        "refuse": refuse,
        "shout": shout,
        "leave": lambda: os._exit(3),
    }
"""


@pytest.fixture
def handlers(tmp_path, monkeypatch):
    (tmp_path / "bench_handlers.py").write_text(HANDLERS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_it_answers_whatever_else_is_printed(handlers):
    with Worker("bench_handlers:serve", env={"SHOUT": "yes"}, offset=100) as worker:
        assert worker.ask("add", a=1, b=2) == 103
        assert worker.ask("shout") == "yes"
        assert worker.ask("add", a=0.5, b=0) == 100.5


def test_its_errors_are_raised_here_and_leave_it_alive(handlers):
    with Worker("bench_handlers:serve", offset=1) as worker:
        with pytest.raises(RequestError, match="first line\nsecond"):
            worker.ask("refuse")
        assert worker.ask("add", a=1, b=1) == 3


def test_an_error_of_its_making(handlers):
    with (
        pytest.raises(RequestError, match="no such offset"),
        Worker("bench_handlers:serve", offset=-1) as worker,
    ):
        worker.ask("add", a=1, b=1)


def test_its_death_is_told(handlers):
    with Worker("bench_handlers:serve", offset=0) as worker:
        for _ in range(2):
            with pytest.raises(ZooError, match="ended with code 3"):
                worker.ask("leave")


def test_leaving_ends_it(handlers):
    with Worker("bench_handlers:serve", offset=0) as worker:
        worker.ask("add", a=1, b=1)
    assert worker._process.returncode == 0


def test_its_environment(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    changed = environment({"OMP_WAIT_POLICY": None, "NEW": "1"})
    assert "OMP_WAIT_POLICY" not in changed and changed["NEW"] == "1"
    root, rest = changed["PYTHONPATH"].split(os.pathsep)
    assert os.path.samefile(os.path.join(root, "zoo", "__init__.py"), zoo.__file__)
    assert rest == "/somewhere" and sys.executable
