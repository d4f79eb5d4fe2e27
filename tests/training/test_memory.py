"""The memory reading against allocations of known size."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from zoo.training import memory
from zoo.training.memory import PeakMemory, resident_mb

MB = 1_000_000


@pytest.fixture(autouse=True)
def _nothing_left_to_collect() -> None:
    """What earlier tests left in cycles must not be freed while memory is read here."""
    gc.collect()


def test_a_peak_that_is_gone_by_the_end_is_seen() -> None:
    with PeakMemory(interval=0.01) as peak:
        held = np.ones(200 * MB, dtype=np.uint8)
        time.sleep(0.2)
        del held
    assert 190 < peak.above_start_mb < 260
    assert resident_mb()[0] < peak.peak_rss_anon_mb - 150


def test_a_reading_between_samples_counts() -> None:
    peak = PeakMemory(interval=1000).start()
    held = np.ones(100 * MB, dtype=np.uint8)
    peak.read()
    del held
    assert peak.stop() == peak.peak_rss_anon_mb
    assert peak.above_start_mb > 90


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_mapped_file_counts_apart(tmp_path: Path) -> None:
    path = tmp_path / "store"
    np.ones(100 * MB, dtype=np.uint8).tofile(path)
    with PeakMemory(interval=1000) as peak:
        before = resident_mb()[1]
        mapped = np.memmap(path, dtype=np.uint8, mode="r")
        assert mapped[::512].sum() > 0
    assert peak.rss_file_mb - before > 90
    assert peak.above_start_mb < 50


def test_starting_again_forgets_and_stopping_twice_is_fine() -> None:
    peak = PeakMemory(interval=0.01).start()
    held = np.ones(150 * MB, dtype=np.uint8)
    peak.read()
    del held
    high = peak.stop()
    assert peak.stop() == high
    peak.start()
    assert peak.stop() < high - 100
    assert not [t for t in threading.enumerate() if t.name == "zoo-memory"]


def test_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    real = sum(resident_mb())
    monkeypatch.setattr(memory, "_STATUS", Path("/nonexistent/status"))
    anonymous, files = resident_mb()
    assert anonymous > 0 and files >= 0
    assert anonymous + files == pytest.approx(real, rel=0.1)
