"""One wheel for one ROCm, done by relink, by auditwheel, and by hand."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.cost import BIN, Cost, Skipped, measured
from relink.elf.patchelf import find_patchelf
from relink.wheel.archive import WheelArchive

RELINK: Final = "relink"
AUDITWHEEL: Final = "auditwheel repair"
BY_HAND: Final = "unzip, patchelf, wheel pack"
_MAKES_OR_REFUSES: Final = frozenset({0, 1})


@dataclass(frozen=True)
class Job:
    """What is to be done.

    :ivar options: of relink, without the output's directory.
    :ivar plan: as `relink --dry-run --json` prints it.
    """

    wheel: Path
    options: tuple[str, ...]
    plan: dict[str, Any]

    @property
    def changed(self) -> list[dict[str, Any]]:
        return [file for file in self.plan["files"] if file["changed"]]

    @property
    def refused(self) -> bool:
        return any(found["level"] == "error" for found in self.plan["findings"])


def plan_job(wheel: Path, options: Sequence[str]) -> Job:
    """:raises Skipped: relink cannot read the wheel or the ROCm."""
    command = [sys.executable, "-m", "relink", str(wheel), *options, "--dry-run", "--json"]
    run = subprocess.run(command, capture_output=True, check=False)
    if run.returncode not in _MAKES_OR_REFUSES:
        raise Skipped(f"relink ends with status {run.returncode}: {run.stderr.decode()[-300:]}")
    return Job(wheel, tuple(options), json.loads(run.stdout))


def sizes(job: Job) -> dict[str, int]:
    """Bytes of the wheel, of all its ELF files, of those that change, and of the largest; and how many there are."""
    with WheelArchive(job.wheel) as archive:
        elf = {file["path"]: archive.members[file["path"]].size for file in job.plan["files"]}
    return {
        "wheel": job.wheel.stat().st_size,
        "files": len(elf),
        "bytes": sum(elf.values()),
        "changed": len(job.changed),
        "changed_bytes": sum(elf[file["path"]] for file in job.changed),
        "largest": max(elf.values(), default=0),
    }


def ways(job: Job) -> dict[str, Callable[[Path], Cost]]:
    """Each way to do the job, of a directory of its own."""
    return {
        BY_HAND: lambda place: _by_hand(job, place),
        AUDITWHEEL: lambda place: _auditwheel(job, place),
        RELINK: lambda place: by_relink(job, place),
    }


def by_relink(job: Job, place: Path, *more: str) -> Cost:
    """All checks, the sandboxed loader and the second reader included; a refusal is an answer, too."""
    command = [sys.executable, "-m", "relink", str(job.wheel), *job.options, "-o", str(place / "out"), *more]
    return measured([command], place, _MAKES_OR_REFUSES if job.refused else frozenset({0}))


def _auditwheel(job: Job, place: Path) -> Cost:
    """It changes nothing but the tag and RECORD: no library is copied in."""
    sonames = {need["soname"] for file in job.plan["files"] for need in file["needed"]}
    exclude = [word for soname in sorted(sonames) for word in ("--exclude", soname)]
    repair = [str(BIN / "auditwheel"), "repair", "--plat", "manylinux_2_35_x86_64", *exclude]
    return measured([[*repair, "-w", str(place / "out"), str(job.wheel)]], place)


def _by_hand(job: Job, place: Path) -> Cost:
    unzip = shutil.which("unzip")
    if unzip is None:
        raise Skipped("unzip is not installed")
    (place / "out").mkdir()
    pack = [str(BIN / "wheel"), "pack", str(place / "x"), "-d", str(place / "out")]
    return measured(
        [[unzip, "-q", str(job.wheel), "-d", "x"], *_edit_calls(job.changed, place / "x"), pack], place
    )


def _edit_calls(files: list[dict[str, Any]], unpacked: Path) -> list[list[str]]:
    """What people do by hand: one call of patchelf for each kind of edit."""
    patchelf = find_patchelf().path
    calls = []
    for file in files:
        path = str(unpacked / file["path"])
        for need in file["needed"]:
            if need["action"] == "substitute":
                calls.append([patchelf, "--replace-needed", need["soname"], need["soname_after"], path])
            elif need["action"] == "drop":
                calls.append([patchelf, "--remove-needed", need["soname"], path])
        added = [need["soname"] for need in file["needed"] if need["action"] == "add"]
        if added:
            calls.append([patchelf, *(word for soname in added for word in ("--add-needed", soname)), path])
        calls.append([patchelf, "--set-rpath", file["rpath"]["after"] or "", path])
    return calls
