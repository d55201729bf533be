"""`relink isa` against llvm-objdump --offloading, as whole commands; and a full ROCm with all of its kernel files.

RELINK_REAL_PREFIX_FULL names a prefix of Debian's ROCm 7.2.4 (…/usr), RELINK_LLVM_OBJDUMP a command line for llvm-objdump 20
or newer where the one in PATH is older.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import Skipped, directory, timed

RELINK = (sys.executable, "-m", "relink")
NAMES = ("llvm-objdump-23", "llvm-objdump-22", "llvm-objdump-21", "llvm-objdump-20", "llvm-objdump")


def objdump() -> list[str]:
    command = shlex.split(os.environ.get("RELINK_LLVM_OBJDUMP", ""))
    command = command or next(([path] for name in NAMES if (path := shutil.which(name))), [])
    if not command:
        raise Skipped("llvm-objdump is not installed; RELINK_LLVM_OBJDUMP names one elsewhere")
    text = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"LLVM version (\d+)", text)
    if version is None or int(version[1]) < 20:
        raise Skipped(f"llvm-objdump {version[1] if version else 'of unknown version'} is older than 20")
    return command


def libraries(prefix: Path) -> Path:
    return prefix / "lib" / "x86_64-linux-gnu"


def against_objdump() -> Iterator[str]:
    """One library of 707 MB, 235 compressed bundles: llvm-objdump writes 3 GB of code objects on the way."""
    path = libraries(directory("RELINK_REAL_PREFIX_FULL", "a full ROCm prefix")) / "librocsolver.so.0.7"
    if not path.is_file():
        raise Skipped(f"{path.name} is not in the prefix")
    peer = objdump()
    document = json.loads(subprocess.check_output([*RELINK, "isa", "--json", path]))
    (item,) = document["items"]
    ours = timed([*RELINK, "isa", path], 10)
    with tempfile.TemporaryDirectory() as place:  # it writes beside its input
        (Path(place) / "x.so").symlink_to(path)
        theirs = timed([*peer, "--offloading", "x.so"], 2, Path(place))
        written = sum(file.stat().st_size for file in Path(place).iterdir() if not file.is_symlink())
    size = path.stat().st_size / 1e6
    yield f"{path.name}: {size:.0f} MB, {item['bundles']} bundles, {len(item['targets'])} targets in each"
    yield f"  relink isa                {ours}"
    yield f"  llvm-objdump --offloading {theirs}, {written / 1e9:.1f} GB written"
    wall, cpu = theirs.best / ours.best, theirs.cpu / ours.cpu
    yield f"  ratio of the best: {wall:.1f} times faster, {cpu:.1f} times less processor time"


def full_prefix() -> Iterator[str]:
    """Everything below a full prefix: every ELF file, every kernel file."""
    prefix = directory("RELINK_REAL_PREFIX_FULL", "a full ROCm prefix")
    document = json.loads(subprocess.check_output([*RELINK, "isa", "--json", prefix]))
    ours = timed([*RELINK, "isa", prefix], 3)
    elf = len(document["items"]) + len(document["without_code"])
    yield f"a full prefix: {document['read']} files with GPU code and {elf} ELF files read: {ours}"


def whole_check() -> Iterator[str]:
    """The share of the GPU check in the main command: with and without a GPU named."""
    prefix = directory("RELINK_REAL_PREFIX_FULL", "a full ROCm prefix")
    wheels = directory("RELINK_REAL_WHEELS", "a directory of vendor wheels")
    wheel = next(iter(sorted(wheels.glob("onnxruntime_rocm-*.whl"))), None)
    if wheel is None:
        raise Skipped("no wheel of onnxruntime-rocm in RELINK_REAL_WHEELS")
    loader = libraries(prefix) / "ld-linux-x86-64.so.2"
    command = [*RELINK, str(wheel), "--prefix", str(prefix), "--interpreter", str(loader), "--dry-run"]
    text = subprocess.run([*command, "--json", "--gpu", "gfx1100"], capture_output=True, check=False).stdout
    stages = json.loads(text)["timings"]
    shown = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in stages.items())
    yield f"{wheel.name} planned with --gpu gfx1100: {shown}"


BENCHMARKS = (against_objdump, full_prefix, whole_check)
