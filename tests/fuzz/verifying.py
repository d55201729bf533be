"""Mutated ELF files through `verify` with the real loader in its sandbox, many as members of one wheel.

Run in a process of its own by tests/support/forking.py, with the words WORKS SCRATCH FIRST COUNT. Of each mutant it is
checked that

- the loader answers within :data:`SECONDS`, and that relink and the loader stay below :data:`MEMORY_CAP`;
- nothing appears beside what relink was given, no canary is made, and no process is left;
- where the loader dies, outside of the sandbox too, `verify` has an error about that member.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from relink import library
from relink.loader import dryrun
from relink.loader.dryrun import LoaderMap
from relink.loader.target import Target
from relink.make import verification as asking
from relink.planning.options import Options
from relink.runs.questions import VerifiedWheel
from relink.system.errors import RelinkError
from relink.system.progress import RunBudget
from relink.system.sandbox.start import Sandbox
from tests.fuzz.hostile import scene_of
from tests.fuzz.inputs import Scene, make_elf, make_structured_elf
from tests.fuzz.watch import remember, watched
from tests.support.elf_attacks import FAR, resegmented, writing
from tests.support.memory import peak

MEMORY_CAP: Final = 1 << 30
"""Bytes that relink, and that one loader, may have held at once."""
SECONDS: Final = 10
"""For the loader to answer about one mutant, and for relink's own part of each."""
MEMBERS: Final = 50
"""Mutants in one wheel."""
_KINDS: Final = (
    "RELATIVE",
    "64",
    "GLOB_DAT",
    "DTPMOD64",
    "TPOFF64",
    "TLSDESC",
    "COPY",
    "IRELATIVE",
    "32",
    "RELR",
    "JMPREL",
)
_DRY_RUN: Final = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "yes", "LD_BIND_NOW": "yes", "LC_ALL": "C"}


def make_mutant(scene: Scene, rng: random.Random) -> bytes:
    """Return an ELF file in which structures, bytes, or the target of one relocation are wrong."""
    chosen = rng.random()
    if chosen < 0.7:
        return make_structured_elf(scene, rng)
    if chosen < 0.85:
        return make_elf(scene, rng)
    target = rng.choice(
        (rng.randrange(0x4000), -rng.randrange(0x40000), FAR + rng.randrange(0x10000), 0x2000)
    )
    data = writing(rng.choice(_KINDS), target & ((1 << 64) - 1))
    return (
        resegmented(data, 1, memory_size=rng.choice((0x3000, 0x10000, 1 << 40)))
        if rng.random() < 0.2
        else data
    )


def verify_batch(scene: Scene, mutants: Sequence[bytes], *, raw: bool) -> tuple[Counter[str], list[str]]:
    """Verify a wheel of mutants; returns how often each thing happened, and what should not have.

    :param raw: also ask the loader outside of the sandbox about what the static scan let through.
    """
    directory = scene.scratch / "wheel"
    # A program of it is not preloaded: the loader is given it.
    path = scene.works.wheel(
        directory, {f"demo/m{number:03}.so": data for number, data in enumerate(mutants)}
    )
    answers: dict[str, list[tuple[str, LoaderMap]]] = {}
    slow: list[str] = []
    with recorded(answers, slow, raw=raw):
        began = time.process_time()
        found = library.verify(path, Options(sandbox="auto"))
        spent = time.process_time() - began
    wrong = [f"the loader took {line}" for line in slow]
    if spent > SECONDS * len(mutants):
        wrong.append(f"relink took {spent:.0f} s for {len(mutants)} mutants")
    return judge(found, answers, wrong, len(mutants)), wrong


def judge(
    found: VerifiedWheel, answers: dict[str, list[tuple[str, LoaderMap]]], wrong: list[str], count: int
) -> Counter[str]:
    """Compare what `verify` says with what the loader said."""
    errors = {item.subject for item in found.findings if item.level == "error"}
    refused = {item.subject for item in found.findings if item.code == "RLK605"}
    counted = Counter(mutants=count, refused=len(refused), asked=len(answers))
    for name, said in answers.items():
        died = [f"{where}: {'; '.join(item.problems)}" for where, item in said if item.died]
        counted["died"] += bool(died)
        if died and name not in errors:
            wrong.append(f"{name}: no error, although the loader died ({died})")
        counted["well"] += name not in errors
    if any(item.code == "RLK602" for item in found.findings):
        wrong.append("RLK602: one member kept the others from being asked about")
    return counted


@contextmanager
def recorded(
    answers: dict[str, list[tuple[str, LoaderMap]]], slow: list[str], *, raw: bool
) -> Iterator[None]:
    """Collect what the loader answers, by member, and the members for which it takes too long."""
    original, limit = dryrun.dry_runs, dryrun.DRY_RUN_TIMEOUT

    @contextmanager
    def dry_runs(
        target: Target,
        programs: Iterable[tuple[str, Iterable[str]]],
        sandbox: Sandbox | None = None,
        *,
        symbols: bool = True,
        budget: RunBudget | None = None,
    ) -> Iterator[Iterator[LoaderMap]]:
        asked = [(program, [*preloads]) for program, preloads in programs]

        def noted(replies: Iterator[LoaderMap]) -> Iterator[LoaderMap]:
            for (program, preloads), reply in zip(asked, replies, strict=True):
                path = next((item for item in (program, *preloads) if "/demo/" in item), program)
                name = path[path.index("demo/") :]
                answers.setdefault(name, []).append(("in the sandbox", reply))
                if any("did not end within" in line for line in reply.problems):
                    slow.append(f"more than {dryrun.DRY_RUN_TIMEOUT} s for {name}")
                if raw:
                    answers[name].append(("outside", ask_raw(target, program, preloads)))
                yield reply

        with original(target, asked, sandbox, symbols=symbols, budget=budget) as replies:
            yield noted(replies)

    asking.dry_runs = dry_runs  # type: ignore[attr-defined]
    dryrun.DRY_RUN_TIMEOUT = SECONDS
    try:
        yield
    finally:
        asking.dry_runs = original  # type: ignore[attr-defined]
        dryrun.DRY_RUN_TIMEOUT = limit


def ask_raw(target: Target, program: str, preloads: Sequence[str]) -> LoaderMap:
    """Ask the loader with nothing around it. What it prints is not read again: only whether it ended well is said."""
    more = {"LD_PRELOAD": ":".join(preloads)} if preloads else {}
    try:
        ended = subprocess.run(
            [target.interpreter, program],
            env=_DRY_RUN | more,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            cwd="/",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return LoaderMap((), (), (f"did not end within {SECONDS} s",), died=True)
    died = ended.returncode not in (0, 1, 127) or b"cannot be preloaded" in ended.stderr
    said = ended.stderr.decode(errors="replace").strip()[:400]
    died |= "error while loading shared libraries: " in said
    return LoaderMap((), (), (f"status {ended.returncode}", said), died=died)


def run(scene: Scene, first: int, count: int, *, raw: bool = True) -> int:
    """Verify `count` mutants; prints what fails, keeps it in ``found/`` and returns how many did."""
    with remember(scene.scratch):
        return _run(scene, first, count, raw=raw)


def _run(scene: Scene, first: int, count: int, *, raw: bool) -> int:
    total: Counter[str] = Counter()
    failed, longest, began = 0, 0.0, time.monotonic()
    for start in range(first, first + count, MEMBERS):
        numbers = range(start, min(start + MEMBERS, first + count))
        mutants = [make_mutant(scene, random.Random(f"verify {number}")) for number in numbers]
        scene.scratch.mkdir(exist_ok=True)
        before, clock = children(), time.monotonic()
        with watched(scene.scratch.parent) as outside:
            try:
                counted, wrong = verify_batch(scene, mutants, raw=raw)
            except RelinkError as error:
                counted, wrong = Counter(mutants=len(mutants)), [f"the whole wheel was refused: {error}"]
        longest = max(longest, time.monotonic() - clock)
        wrong += outside
        left = {item.name for item in scene.scratch.parent.iterdir()} - {
            "here",
            "plan",
            "plan.json",
            "ld.so.cache",
            "found",
        }
        wrong += [f"left in the temporary directory: {name}" for name in sorted(left)]
        wrong += [f"a process is left: {name}" for name in sorted(children() - before)]
        total += counted
        for line in wrong:
            failed += 1
            found = scene.scratch.parent / "found"
            found.mkdir(exist_ok=True)
            for number, data in zip(numbers, mutants, strict=True):
                (found / f"verify-{number}").write_bytes(data)
            sys.stdout.write(f"verify {numbers.start}-{numbers.stop - 1}: {line}\n")
        if failed >= 10:
            break
    held = {"relink": peak(), "loader": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10}
    for who, amount in held.items():
        if amount > MEMORY_CAP:
            failed += 1
            sys.stdout.write(f"verify: {who} held {amount >> 20} MiB at once\n")
    report = {
        **total,
        "failed": failed,
        "seconds": round(time.monotonic() - began, 1),
        "longest batch": round(longest, 1),
        "mib": {who: amount >> 20 for who, amount in held.items()},
    }
    sys.stdout.write(f"{json.dumps(report)}\n")
    return failed


def children() -> set[str]:
    """Return the processes that this one has started and that have not been waited for, or that are in a session of theirs."""
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                status = Path(f"/proc/{entry}/stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            name, rest = status.rsplit(")", 1)
            if rest.split()[1] == str(os.getpid()):
                found.add(name)
    return found


def main() -> None:
    """``verifying WORKS SCRATCH FIRST COUNT``; ends with 1 where a mutant was not judged as the loader judges."""
    works_directory, scratch_directory, start, how_many = sys.argv[1:]
    tempfile.tempdir = scratch_directory
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.exit(
        1 if run(scene_of(Path(works_directory), Path(scratch_directory)), int(start), int(how_many)) else 0
    )
