"""What a run uses: processor, memory, disk and GPU, of the trainer and of its worker processes.

One `Monitor` lives as long as the run, because a processor share is the difference between two looks. A sample
costs about half a millisecond with eight workers. GPUs are seen where the package `pynvml` (nvidia-ml-py) is
installed; no other program is ever started.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from holdfast.store.schema import Field, Kind

WINDOW = 100
"""Samples over which means are taken."""
SEARCH_EVERY = 6
"""Samples between two searches for new processes."""
MB = 1024.0 * 1024.0
LINUX = sys.platform == "linux"
TICKS = os.sysconf("SC_CLK_TCK") if LINUX else 1
PAGE = os.sysconf("SC_PAGE_SIZE") if LINUX else 1
GONE = (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess)

RESOURCES = Kind(
    "resources.jsonl",
    "One line a beat: what the run uses.",
    (
        Field("at", "number", "Unix time", always=True),
        Field("update", "integer", "updates made so far", always=True),
        Field("env_steps", "integer", "steps of all slots together so far", always=True),
        Field("cpu_pct", "number", "processor share of the trainer; 100 is one core", always=True),
        Field(
            "children_cpu_pct", "number", "processor share of all processes below it", always=True
        ),
        Field(
            "rss_mb", "number", "memory of the trainer and of all processes below it", always=True
        ),
        Field("own_rss_mb", "number", "memory of the trainer alone", always=True),
        Field("threads", "integer", "threads of the trainer", always=True),
        Field("children", "integer", "processes below the trainer", always=True),
        Field(
            "workers",
            "object",
            "processor share of each process below the trainer, by pid",
            always=True,
        ),
        Field(
            "system_cpu_pct",
            "number",
            "processor share of the machine; 100 is all of it",
            always=True,
        ),
        Field("system_memory_pct", "number", "share of the machine's memory in use", always=True),
        Field("load1", "number", "load average of the last minute"),
        Field("disk_free_gb", "number", "space left where the run is stored", always=True),
        Field("gpu_count", "integer", "GPUs that are seen", always=True),
        Field("gpu_util_pct", "number", "mean use of all GPUs"),
        Field("gpu_<index>_util_pct", "number", "use of one GPU"),
        Field("gpu_<index>_memory_mb", "number", "memory in use of one GPU"),
        Field("cost_ms", "number", "what this sample cost", always=True),
        Field(
            "mean_<name>",
            "number",
            f"mean over the last {WINDOW} samples: of cpu_pct, rss_mb, gpu_util_pct",
        ),
    ),
)


class Monitor:
    """Samples what this process and those below it use."""

    def __init__(self, directory: Path, gpus: Any = None) -> None:
        """Watch this process; `directory` is where the disk is measured, `gpus` an NVML-like module."""
        self.directory = directory
        self._own = psutil.Process()
        self._below: list[int] = []
        self._samples = 0
        self._before: dict[int, tuple[float, float]] = {}
        """Processor seconds of each process below, and when they were read."""
        self._window: deque[dict[str, float]] = deque(maxlen=WINDOW)
        self._gpus = gpus if gpus is not None else nvml()
        self._handles: list[Any] = []
        if self._gpus is not None:
            count = int(self._gpus.nvmlDeviceGetCount())
            self._handles = [self._gpus.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
        # The first call of each only sets the mark from which the next one counts.
        self._own.cpu_percent()
        psutil.cpu_percent()

    def sample(self) -> dict[str, Any]:
        """Return what is used now, as numbers by name."""
        began = time.perf_counter()
        with self._own.oneshot():
            cpu, own, threads = (
                self._own.cpu_percent(),
                self._own.memory_info().rss,
                self._own.num_threads(),
            )
        shares, below = self._look_below()
        found: dict[str, Any] = {
            "cpu_pct": cpu,
            "children_cpu_pct": sum(shares.values()),
            "rss_mb": (own + below) / MB,
            "own_rss_mb": own / MB,
            "threads": threads,
            "children": len(shares),
            "workers": {str(pid): share for pid, share in shares.items()},
            "system_cpu_pct": psutil.cpu_percent(),
            "system_memory_pct": psutil.virtual_memory().percent,
            "disk_free_gb": shutil.disk_usage(self.directory).free / 1e9,
            "gpu_count": len(self._handles),
            **self._look_at_gpus(),
        }
        with contextlib.suppress(OSError, AttributeError):
            found["load1"] = os.getloadavg()[0]
        kept = ("cpu_pct", "rss_mb", "gpu_util_pct")
        self._window.append({k: float(found[k]) for k in kept if k in found})
        found.update(self.means())
        found["cost_ms"] = 1000 * (time.perf_counter() - began)
        return found

    def means(self) -> dict[str, float]:
        """Return the means over the last samples."""
        found = {}
        for name in self._window[-1] if self._window else ():
            values = [sample[name] for sample in self._window if name in sample]
            found[f"mean_{name}"] = sum(values) / len(values)
        return found

    def _look_below(self) -> tuple[dict[int, float], float]:
        """Return the processor shares of all processes below this one, and their memory together."""
        now = time.perf_counter()
        before, self._before = self._before, {}
        shares, memory = {}, 0.0
        if self._samples % SEARCH_EVERY == 0:
            self._below = list(descendants(self._own.pid))
        self._samples += 1
        for pid in self._below:
            found = usage(pid)
            if found is None:
                self._samples = 0  # somebody is gone, and perhaps replaced: search next time
                continue
            spent, rss = found
            self._before[pid] = (spent, now)
            was, at = before.get(pid, (spent, now))
            shares[pid] = 100.0 * (spent - was) / (now - at) if now > at else 0.0
            memory += rss
        return shares, memory

    def _look_at_gpus(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for i, handle in enumerate(self._handles):
            found[f"gpu_{i}_util_pct"] = float(self._gpus.nvmlDeviceGetUtilizationRates(handle).gpu)
            found[f"gpu_{i}_memory_mb"] = self._gpus.nvmlDeviceGetMemoryInfo(handle).used / MB
        if self._handles:
            used = [found[f"gpu_{i}_util_pct"] for i in range(len(self._handles))]
            found["gpu_util_pct"] = sum(used) / len(used)
        return found


def nvml() -> Any:
    """Return the NVML module, ready, or None if there is none or no driver."""
    try:
        found: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        found.nvmlInit()
    except found.NVMLError:
        return None
    return found


def usage(pid: int) -> tuple[float, float] | None:
    """Return processor seconds and memory in bytes of a process, or None if it is gone.

    One file tells both on Linux, five times as fast as asking psutil for each.
    """
    if not LINUX:
        with contextlib.suppress(*GONE):
            process = psutil.Process(pid)
            times = process.cpu_times()
            return times.user + times.system, float(process.memory_info().rss)
        return None
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # What stands in brackets is the program's name, which may hold anything.
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return (int(words[11]) + int(words[12])) / TICKS, float(int(words[21]) * PAGE)


def descendants(pid: int) -> Iterable[int]:
    """Return the processes below a process.

    Linux keeps the children of each thread in a file; elsewhere every process of the machine is looked at.
    """
    tasks = Path(f"/proc/{pid}/task")
    if not (tasks / str(pid) / "children").exists():
        with contextlib.suppress(*GONE):
            return [child.pid for child in psutil.Process(pid).children(recursive=True)]
        return []
    found: list[int] = []
    waiting = [pid]
    while waiting:
        folder = f"/proc/{waiting.pop()}/task"
        with contextlib.suppress(OSError):
            for task in os.listdir(folder):
                with open(f"{folder}/{task}/children") as file:
                    children = [int(word) for word in file.read().split()]
                found += children
                waiting += children
    return found
