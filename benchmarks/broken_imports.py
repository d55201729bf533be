"""``python -m benchmarks.broken_imports ENV [COUNT]``: packages that are broken on purpose, and what `relink check` says of them.

Of an environment's packages that `relink check` says work, and whose import succeeds, COUNT (30) are broken one after the other,
each in the three ways of :data:`WAYS`, and mended again: a library that its import maps is not there, is one of the same name
without a symbol, or is shadowed by such a one in LD_LIBRARY_PATH. The environment is a copy that may be lost. The code of the
packages runs. What counts is whether the import fails, whether `relink check` says so, and whether it names the library.
"""

from __future__ import annotations

import glob
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.imports import check

WAYS = ("deleted", "of another version", "shadowed")


def soname_of(library: Path) -> str:
    """Return the soname of a library; empty for what is none."""
    run = subprocess.run(["patchelf", "--print-soname", library], capture_output=True, text=True, check=False)
    return run.stdout.strip()


@contextmanager
def broken(library: Path, soname: str, way: str) -> Iterator[dict[str, str]]:
    """Break a library for as long as the context lasts, and give the environment variables that belong to it."""
    with tempfile.TemporaryDirectory() as name:
        empty = Path(name, soname)
        command: list[str | Path] = [
            "gcc",
            "-shared",
            "-nostdlib",
            "-x",
            "c",
            os.devnull,
            f"-Wl,-soname,{soname}",
            "-o",
            empty,
        ]
        subprocess.run(command, check=True)
        if way == "shadowed":
            yield {"LD_LIBRARY_PATH": name}
            return
        kept = library.rename(library.with_name(f"{library.name}.kept"))
        try:
            if way == "of another version":
                library.write_bytes(empty.read_bytes())
            yield {}
        finally:
            kept.replace(library)


def candidates(directory: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield packages that work, with a library of theirs that another file of theirs needs: name, path and soname."""
    for one in check(directory)[0]["distributions"]:
        if one["level"] == "error" or not one["text"].startswith("works"):
            continue
        for member, part in one["parts"].items():
            if part in ("import", "carried") and ".cpython-" not in member and ".abi3." not in member:
                (found,) = directory.glob(f"lib/python3*/site-packages/{glob.escape(member)}")
                if soname_of(found) == found.name:
                    yield one["name"], found, found.name
                    break


def main(arguments: list[str]) -> int:
    directory, count = Path(arguments[0]).resolve(), int(arguments[1]) if arguments[1:] else 30
    counted: Counter[str] = Counter()
    for name, library, soname in itertools.islice(candidates(directory), count):
        for way in WAYS:
            with broken(library, soname, way) as variables:
                (said,) = check(directory, "--why", name, variables=variables)[0]["distributions"]
                (real,) = check(directory, "--why", name, "--import", variables=variables)[0]["distributions"]
            fails = real["imported"]["error"] is not None
            told = said["level"] == "error"
            named = soname in json.dumps(said["findings"]) + said["text"]
            end = f"{'fails' if fails else 'works'}, {'told' if told else 'not told'}{', named' if told and named else ''}"
            counted[end] += 1
            print(
                f"{name} | {soname} | {way} | {end} | {said['text'][:120]} | {real['imported']['error']}",
                flush=True,
            )
    print(dict(counted))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
