"""What is told of the machine, and that a bench stops where its figures would mean nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from zoo.bench import machine
from zoo.bench.worker import environment
from zoo.errors import ZooError


@pytest.fixture
def spinning():
    """Another process that keeps a core busy."""
    code = "print('up', flush=True)\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    # Ours as little as somebody else's: what is tested is that it is told from our own work.
    yield process
    process.kill()
    process.communicate()


def test_other_work_stops_a_bench_unless_forced(spinning, monkeypatch):
    # A child of this process would count as its own.
    monkeypatch.setattr(machine.psutil.Process, "children", lambda self, recursive=False: [])
    with pytest.raises(ZooError, match=r"something else is using the cores: \d.*process") as error:
        machine.check_quiet(seconds=0.5)
    assert len(str(error.value).splitlines()) <= 3
    assert machine.check_quiet(seconds=0.2, force=True).others > machine.QUIET


def test_own_work_and_children_count_as_own(spinning):
    meter = machine.LoadMeter()
    total = 0
    while meter.read().seconds < 0.5:
        total += sum(range(10_000))
    load = meter.read()
    # Two busy threads of our own, one of them in a child: shared cores slow them, no more.
    assert load.own > 0.2
    only_us = machine.psutil.Process()
    assert spinning.pid in [child.pid for child in only_us.children(recursive=True)]
    before = machine._counters()[3]
    spun = machine.psutil.Process(spinning.pid).cpu_times().user
    assert spun <= before


def test_facts_of_the_machine(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    facts = machine.describe()
    assert facts["threads"] == torch.get_num_threads()
    assert facts["omp_wait_policy"] == "ACTIVE"
    assert facts["cpu"] and facts["cores"] >= 1 and facts["memory_gb"] > 0
    monkeypatch.delenv("OMP_WAIT_POLICY")
    assert machine.describe()["omp_wait_policy"] == "unset"


def test_peaks_come_from_the_best_try(monkeypatch):
    times = iter([0.0, 0.0, 2.0, 2.0, 2.5, 2.5, 4.0, 4.0, 9.0])  # 2 s, 0.5 s, 1.5 s, 5 s
    monkeypatch.setattr(machine.time, "perf_counter", lambda: next(times))
    calls = []
    assert machine._best(lambda: calls.append(1), seconds=5) == 0.5
    assert len(calls) == 5  # one more to warm up


def test_peaks_are_rates():
    found = machine.peaks(seconds=0.01, size=64, megabytes=1)
    assert set(found) == {"float32_gflops", "bf16_gflops", "copy_gb_per_s"}
    assert all(value > 0 for value in found.values())


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this CPU keeps denormals")
def test_denormals_are_flushed_in_every_thread():
    before = "assert (torch.full((1 << 22,), 2e-38) * 0.1).any()\n"
    for earlier_work, expected in (("", "True"), (before, "False")):
        # Threads that have worked before keep their own setting, and that must be noticed.
        code = (
            f"import torch; torch.set_num_threads(2)\n{earlier_work}"
            "from zoo.bench.machine import flush_denormals; print(flush_denormals())"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=environment({"OMP_NUM_THREADS": "2"}),
            check=True,
        )
        assert done.stdout.strip() == expected
