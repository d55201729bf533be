"""Wheels that bring a HIP runtime, or open one by its name, or both: two of them in one process are told.

The same number makes the same wheel. Whatever `relink` prints as a command is typed, and so is what the result prints.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.situations.standins import BESIDE, OPEN, library
from tests.support.wheels import make_wheel

__all__ = ["NAMES", "make_bundle", "try_bundle"]

NAMES = (
    *(
        "libamdhip64.so",
        "libamdhip64.so.7",
        "libamdhip64.so.6",
        "libhsa-runtime64.so.1",
        "libhsa-runtime64.so",
    ),
    *("librccl.so.1", "libMIOpen.so", "libMIOpen.so.1", "librocblas.so"),
)
"""The names that members open."""
_ROUNDS = 5
_LIBS = "bundled.libs"
ATTEMPT = """def attempt(library, name):
    try:
        getattr(open_(library), name)()
    except (OSError, AttributeError):
        pass
"""
_ASK = """
import sys
sys.path.insert(0, sys.argv[1])
import bundled
print(*sorted({line.split()[-1] for line in open("/proc/self/maps") if "/" in line}), sep="\\n")
"""
Relink = Callable[..., tuple[int, str, str]]


def make_bundle(number: int, root: Path, prefixes: Sequence[Path]) -> tuple[Path, Path]:
    """Return the wheel of a number, and the prefix that it is relinked for."""
    rng = random.Random(f"bundle {number}")
    prefix = rng.choice(prefixes)
    major = rng.choice("67")
    beside: list[Path] = []
    old = rng.random() < 0.5
    kind = rng.choice(("none", "plain", "plain", "mangled", "mangled", "hsa"))
    mangled = kind == "mangled"
    if kind != "none":
        name = "libhsa-runtime64-b8cdb8cd.so.1" if mangled else "libhsa-runtime64.so.1"
        beside.append(library(root / "b" / name, exports=["hsa_init"], node="ROCR_1", search=BESIDE, old=old))
    if kind in ("plain", "mangled"):
        opened = rng.choice(("", *NAMES[:3]))
        again = f'#include <dlfcn.h>\nvoid *opens_{major}(void){{return dlopen("{opened}", RTLD_NOW);}}\n'
        name = f"libamdhip64-f104f104.so.{major}" if mangled else f"libamdhip64.so.{major}"
        hip = library(
            root / "b" / name,
            exports=["hipMalloc", "hipFree"],
            imports=["hsa_init"],
            needed=beside,
            node=f"hip_{major}.0",
            search=rng.choice((BESIDE, BESIDE, "/opt/rocm/lib")),
            old=old,
            code=again if opened else "",
        )
        beside.append(hip)
    own = [path for path in beside if "amdhip" in path.name]
    theirs = next((prefix / "lib").glob("libamdhip64.so.*"))
    files: dict[str, bytes | Path] = {f"{_LIBS}/{path.name}": path for path in beside}
    source = OPEN + ATTEMPT
    for part in range(rng.randrange(1, 4)):
        opened = rng.choice(("", *NAMES))
        runtime = rng.choice((*own, *own, theirs, None))
        path = library(
            root / "u" / f"libpart{part}.so",
            exports=[f"part{part}"],
            imports=["hipMalloc"] if runtime else (),
            needed=[runtime] if runtime else (),
            search=rng.choice((f"$ORIGIN/../{_LIBS}", f"$ORIGIN/../{_LIBS}", "/opt/rocm/lib", "")),
            old=rng.random() < 0.5,
            code=f'#include <dlfcn.h>\nvoid *asks{part}(void){{return dlopen("{opened}", RTLD_NOW);}}\n'
            if opened
            else "",
        )
        files[f"bundled/{path.name}"] = path
        source += f"attempt('{path.name}', '{f'asks{part}' if opened else f'part{part}'}')\n"
    for path in own:
        source += f"attempt('../{_LIBS}/{path.name}', 'opens_{major}')\n"
    wheel = make_wheel(
        root / "in",
        files | {"bundled/__init__.py": source.encode()},
        name="bundled",
        tag="py3-none-linux_x86_64",
    )
    return wheel, prefix


def try_bundle(
    number: int, root: Path, prefixes: Sequence[Path], run: Relink, counted: Counter[str]
) -> str | None:
    """Relink a wheel, type what is printed until a wheel is written, and import that; returns what is wrong, or None."""
    wheel, prefix = make_bundle(number, root, prefixes)
    words: list[str | Path] = [wheel, "--prefix", prefix, "-o", root / "out"]
    written, told = None, False
    for _ in range(_ROUNDS):
        shutil.rmtree(root / "out", ignore_errors=True)
        code, out, err = run(*words, "-v")
        assert code in (0, 1), err
        told = "RLK130" in out
        written = next((root / "out").glob("*.whl"), None) if code == 0 else None
        printed = [
            line.strip()
            for line in out.rpartition("\nNext")[2].splitlines()
            if line.startswith("    relink ")
        ]
        following = [
            shlex.split(line)[1:] for line in printed if " rules " not in line and " repair " not in line
        ]
        again = [word for word in following[0] if word != "-v"] if following else []
        if not again or again == [str(word) for word in words]:
            break
        counted["options that were followed"] += len(again) - len(words)
        words = [*again]
    if written is None:
        counted["refused"] += 1
        return None
    counted["written"] += 1
    site = root / "site"
    shutil.rmtree(site, ignore_errors=True)
    with zipfile.ZipFile(written) as archive:
        archive.extractall(site)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    asked = subprocess.run(
        [sys.executable, "-c", _ASK, str(site)], env=environment, capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, f"bundle {number}: {asked.stderr}"
    mapped = [
        path
        for path in asked.stdout.split()
        if re.search(r"libamdhip64[^/]*$", path) and "relink-stubs" not in path
    ]
    counted[f"{min(len(mapped), 2)} runtimes"] += 1
    if len(mapped) > 1 and not told:
        return f"bundle {number}: {mapped} by {shlex.join(map(str, words))}"
    return None
