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
import zlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Lists, as appending to one is atomic: many threads of relink count.
_counts: defaultdict[str, list[int]] = defaultdict(list)
# Modules of Python and of relink, which are opened to be imported, and what is no file.
_NOT_COUNTED = tuple(
    f"{place}/" for place in (*sysconfig.get_paths().values(), os.getcwd(), "/proc", "/sys", "/dev")
)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str) and not arguments[0].startswith(_NOT_COUNTED):
        _counts["opened"].append(1)
    elif event in ("subprocess.Popen", "os.fork", "os.posix_spawn"):
        _counts["processes"].append(1)


class _Wrapped:
    """An object of a library, one method of which counts."""

    def __init__(self, inner: Any, method: str, count: Callable[[Any, Any], int], name: str) -> None:
        self._inner, self._how = inner, (method, count, name)
        own = getattr(inner, method)

        def counting(data: Any, *more: Any) -> Any:
            result = own(data, *more)
            _counts[name].append(count(data, result))
            return result

        setattr(self, method, counting)

    def copy(self) -> _Wrapped:
        return _Wrapped(self._inner.copy(), *self._how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _given(data: Any, _: Any) -> int:
    return memoryview(data).nbytes


def _made(_: Any, result: Any) -> int:
    return result if isinstance(result, int) else len(result)


def _wrap(module: Any, make: str, method: str, count: Callable[[Any, Any], int], name: str) -> None:
    """Let objects that `make` of a module returns count what one of their methods takes or gives."""
    original = getattr(module, make)
    setattr(module, make, lambda *words, **more: _Wrapped(original(*words, **more), method, count, name))


def _start_counting() -> None:
    sys.addaudithook(_audit)
    for make in ("sha256", "new"):
        _wrap(hashlib, make, "update", _given, "hashed")
        setattr(hashlib, make, _hashing(getattr(hashlib, make)))
    _wrap(zlib, "compressobj", "compress", _given, "deflated")
    _wrap(zlib, "decompressobj", "decompress", _made, "inflated")
    for name in ("isal.isal_zlib", "zlib_ng.zlib_ng"):
        module = importlib.import_module(name)
        _wrap(module, "compressobj", "compress", _given, "deflated")
        _wrap(module, "decompressobj", "decompress", _made, "inflated")
        _wrap(module, "_GzipReader", "readinto", _made, "inflated")
    for flush in ("fsync", "fdatasync"):
        setattr(os, flush, _flushing(getattr(os, flush)))


def _hashing(make: Callable[..., Any]) -> Callable[..., Any]:
    """Let `make` count the data that it is given, as well as what its digest is updated with."""

    def counting(*words: Any, **more: Any) -> Any:
        _counts["hashed"] += [memoryview(word).nbytes for word in words if not isinstance(word, str)]
        return make(*words, **more)

    return counting


def _flushing(flush: Callable[[int], None]) -> Callable[[int], None]:
    def counting(file: int) -> None:
        _counts["flushes"].append(1)
        flush(file)

    return counting


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
