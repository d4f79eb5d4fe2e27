"""Peak memory of this process: what it holds of its own, apart from mapped files.

A memory-mapped store counts as resident while its pages are cached, though the system takes them
back when it likes. So the anonymous part (RssAnon) is the figure to watch, and the part that backs
files (RssFile) stands beside it.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_STATUS = Path("/proc/self/status")


def resident_mb() -> tuple[float, float]:
    """Resident memory of this process now, in MB (1e6 bytes): its own, and of mapped files.

    Where the system does not tell them apart (no /proc), all of it counts as its own.
    """
    try:
        text = _STATUS.read_text(encoding="ascii", errors="replace")
    except OSError:
        return _from_psutil()
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssFile"):
            found[name] = int(value.split()[0]) * 1024 / 1e6
    if len(found) < 2:
        return _from_psutil()
    return found["RssAnon"], found["RssFile"]


class PeakMemory:
    """The peak between `start` and `stop`, sampled from a thread and at both ends.

    A context manager too. An allocation shorter than `interval` seconds may be missed; call `read`
    where memory is known to be high. Readings are in MB (1e6 bytes).
    """

    def __init__(self, *, interval: float = 0.2) -> None:
        self.interval = interval
        self.start_rss_anon_mb = 0.0
        self.peak_rss_anon_mb = 0.0
        self.rss_file_mb = 0.0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def above_start_mb(self) -> float:
        """How far the peak of its own memory lies above what was held at `start`."""
        return max(0.0, self.peak_rss_anon_mb - self.start_rss_anon_mb)

    def start(self) -> Self:
        """Forget earlier peaks and begin to sample."""
        self.stop()
        self.peak_rss_anon_mb = self.rss_file_mb = 0.0
        self.start_rss_anon_mb = self.read()
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._sample, args=(self._stop,), name="zoo-memory", daemon=True
        )
        self._thread.start()
        return self

    def read(self) -> float:
        """Take a reading now; returns the peak of its own memory so far, in MB."""
        anonymous, files = resident_mb()
        with self._lock:
            self.peak_rss_anon_mb = max(self.peak_rss_anon_mb, anonymous)
            self.rss_file_mb = max(self.rss_file_mb, files)
            return self.peak_rss_anon_mb

    def stop(self) -> float:
        """Take a last reading and end the sampling; returns the peak in MB. May be called twice."""
        if self._thread is None:
            return self.peak_rss_anon_mb
        self._stop.set()
        self._thread.join()
        self._thread = None
        return self.read()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _sample(self, stop: threading.Event) -> None:
        while not stop.wait(self.interval):
            self.read()


def _from_psutil() -> tuple[float, float]:
    memory = psutil.Process().memory_info()
    # On Linux `shared` is what files and shared memory back; other systems don't say.
    files = float(getattr(memory, "shared", 0))
    return (memory.rss - files) / 1e6, files / 1e6
