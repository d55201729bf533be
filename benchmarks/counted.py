"""``python benchmarks/counted.py FILE ARGUMENT…``: run relink of the current directory, and write to FILE what it did, as JSON.

Counted are bytes that are read, written, hashed, inflated and deflated, flushes, files that are opened, and processes that are
started. Nothing in relink counts: audit hooks of Python (PEP 578), wrapped functions of the libraries, and /proc/PID/io do, which
has what processes read and wrote that have ended. What is mapped is not read.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib
import json
import os
import runpy
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zlib_ng import zlib_ng

# Lists, as appending to one is atomic: many threads of relink count.
_counts: defaultdict[str, list[int]] = defaultdict(list)
# Modules of Python and of relink, which are opened to be imported, and what is no file.
_NOT_COUNTED = tuple(
    f"{place}/" for place in (*sysconfig.get_paths().values(), os.getcwd(), "/proc", "/sys", "/dev")
)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str) and not arguments[0].startswith(_NOT_COUNTED):
        _counts["opened"].append(1)
    elif event in (
        "subprocess.Popen",
        "os.fork",
    ):  # subprocess of Python 3.13 has posix_spawn do it, another event
        _counts["processes"].append(1)


class _Wrapped:
    """An object of a library, some methods of which count."""

    def __init__(self, inner: Any, name: str, methods: dict[str, Callable[[Any, Any], int]]) -> None:
        self._inner, self._how = inner, (name, methods)
        for method, count in methods.items():
            setattr(self, method, _counting(getattr(inner, method), count, name))

    def copy(self) -> _Wrapped:
        return _Wrapped(self._inner.copy(), *self._how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _counting(
    function: Callable[..., Any], count: Callable[[Any, Any], int], name: str
) -> Callable[..., Any]:
    def counting(*words: Any, **more: Any) -> Any:
        result = function(*words, **more)
        _counts[name].append(count(words, result))
        return result

    return counting


def _given(words: Any, _: Any) -> int:
    return sum(memoryview(word).nbytes for word in words if not isinstance(word, str))


def _made(_: Any, result: Any) -> int:
    return result if isinstance(result, int) else len(result)


def _once(_: Any, _result: Any) -> int:
    return 1


def _wrap(module: Any, make: str, name: str, methods: dict[str, Callable[[Any, Any], int]]) -> None:
    """Let objects that `make` of a module returns count what methods of theirs take or give."""
    original = getattr(module, make)
    setattr(module, make, lambda *words, **more: _Wrapped(original(*words, **more), name, methods))


def _start_counting() -> None:
    sys.addaudithook(_audit)
    for make in ("sha256", "new"):
        # What the digest begins with counts, too.
        setattr(hashlib, make, _counting(getattr(hashlib, make), _given, "hashed"))
        _wrap(hashlib, make, "hashed", {"update": _given})
    for name in ("zlib", "isal.isal_zlib", "zlib_ng.zlib_ng"):
        module = importlib.import_module(name)
        _wrap(module, "compressobj", "deflated", {"compress": _given})
        _wrap(module, "decompressobj", "inflated", {"decompress": _made, "flush": _made})
    _wrap(zlib_ng, "_GzipReader", "inflated", {"readinto": _made})
    for flush in ("fsync", "fdatasync"):
        setattr(os, flush, _counting(getattr(os, flush), _once, "flushes"))


def _report(file: Path) -> None:
    words = Path("/proc/self/io").read_text().split()
    totals = {name: sum(numbers) for name, numbers in _counts.items()}
    totals |= {"read": int(words[1]), "written": int(words[3])}
    file.write_text(json.dumps(totals))


if __name__ == "__main__":
    _start_counting()
    atexit.register(_report, Path(sys.argv[1]))
    sys.path[0] = os.getcwd()
    sys.argv[:2] = ["relink"]
    with contextlib.suppress(BrokenPipeError):
        runpy.run_module("relink", run_name="__main__", alter_sys=True)
