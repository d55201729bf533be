"""Generated libraries and programs as the kpack splitter leaves them, edited by some patchelf, judged by the checks and by ld.so.

A program of its own: ``python -m tests.fuzz.kpack_edits SCRATCH SEED COUNT [PATCHELF]``. Without PATCHELF relink edits
with its own; with one, that patchelf's output is given to the checks as it is. Prints the counts as JSON.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

from msgspec.structs import replace

from relink.elf.edit import ElfEdit, argument_lists, predict_edit
from relink.elf.edit_checks import check_edit
from relink.elf.image import read_image
from relink.loader.target import find_target
from relink.system.errors import EditError, ElfError
from relink.system.sandbox.start import Sandbox, find_sandbox
from tests.support import kpack_elf, old_kernel
from tests.support.cc import cc, shared
from tests.support.edits import apply_edit

LOADER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    pid_t child = fork();
    if (!child) {
      void *handle = dlopen(argv[i], RTLD_NOW);
      int (*check)(void) = handle ? (int (*)(void))dlsym(handle, "check") : 0;
      _exit(check ? check() : 99);
    }
    int status = 1;
    waitpid(child, &status, 0);
    printf("%d\n", status);
  }
  return 0;
}
"""
FLAGS: tuple[tuple[str, ...], ...] = (
    (),
    ("-Wl,-z,noseparate-code",),
    ("-Wl,--hash-style=both", "-Wl,--build-id=none"),
    ("-Wl,-z,max-page-size=0x10000",),
    ("-Wl,-z,pack-relative-relocs",),
    ("-Wl,-z,norelro", "-Wl,-z,now"),
)
FATS = (100, 4096, 3 * 4096 + 100, 40 * 4096 + 7)
BSS = (8, 5000, 400_000)


class Inputs:
    """Makes inputs in a directory; the same seed gives the same ones."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.directory, self.rng = directory, rng
        self.dependency = shared(directory / "deps" / "libdep.so.1", "int dep(void){return 40;}")
        shared(directory / "deps" / "libother.so.1", "int dep(void){return 40;}")
        shared(directory / "deps" / "libmore.so.1", "int more(void){return 1;}")
        self.loader = cc(LOADER, directory / "loader", needed=["-ldl"])

    def make(self, number: int) -> Path:
        """Return a new split file: a library, or one time in four a program."""
        rng, program = self.rng, self.rng.random() < 0.25
        shape = rng.randrange(len(FLAGS)), rng.choice(FATS), rng.choice(BSS), rng.choice((1, 2, 9))
        flags, fat, bss, wrappers = shape
        base = self.directory / "base" / f"{'prog' if program else 'lib'}-{'-'.join(map(str, shape))}.so"
        if not base.exists():
            kpack_elf.compile_input(
                base,
                self.dependency,
                wrappers=wrappers,
                fat=fat,
                bss=bss,
                flags=FLAGS[flags],
                program=program,
            )
        paths = [
            f"../.kpack/{'k' * rng.randrange(1, 30)}_@GFXARCH@.kpack" for _ in range(rng.randrange(1, 60))
        ]
        reference = kpack_elf.reference("lib/" + "n" * rng.randrange(1, 200), paths[:15])
        data = kpack_elf.split(base.read_bytes(), reference, pin=rng.random() < 0.5, phdr=rng.random() < 0.5)
        path = self.directory / "files" / f"{number}{'.prog' if program else '.so'}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755)
        return path

    def edit(self, needed: tuple[str, ...], interpreter: str | None, *, last: bool) -> ElfEdit:
        """Return an edit; after the `last` one the file loads."""
        rng = self.rng
        place = str(self.directory / "deps") if last else "/still/nowhere"
        entries = [*("/" + "x" * rng.randrange(200) for _ in range(rng.randrange(3))), place]
        rng.shuffle(entries)
        swap = {"libdep.so.1": "libother.so.1", "libother.so.1": "libdep.so.1"}
        changes = tuple((old, new) for old, new in swap.items() if old in needed and rng.random() < 0.3)
        named = None
        if interpreter is not None and rng.random() < 0.5:
            named = "/" * rng.randrange(1, 60) + find_target().interpreter.lstrip("/")
        return ElfEdit(
            ":".join(entries),
            rng.choice(("runpath", "rpath")),
            replace=changes,
            add=("libmore.so.1",) if rng.random() < 0.4 else (),
            interpreter=named,
        )


def edit_by(patchelf: str, path: Path, edit: ElfEdit) -> list[str] | None:
    """Let an older patchelf edit the file; returns what the checks say, or None if patchelf itself gave up."""
    original = path.read_bytes()
    try:
        before = read_image(original, path.name)
    except ElfError as error:
        return [error.message]  # after an edit that broke it
    for arguments in argument_lists(before, edit):
        known = [one for one in arguments if one != "--no-clobber-old-sections"]  # 0.19 has it
        if subprocess.run([patchelf, *known, path], capture_output=True, check=False).returncode:
            return None
    data = path.read_bytes()
    try:
        after, planned = read_image(data, path.name), predict_edit(before, edit).needed
        if sorted(after.needed) == sorted(planned):
            after = replace(after, needed=planned)  # relink itself puts them into this order
        return check_edit(original, data, before, after, edit)
    except ElfError as error:
        return [error.message]


def answers(inputs: Inputs, paths: list[Path]) -> list[bool]:
    """Whether each file is loaded by ld.so, and does what it did before it was edited."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    libraries = [path for path in paths if path.suffix == ".so"]
    run = subprocess.run([inputs.loader, *libraries], capture_output=True, text=True, env=clean, check=True)
    right = dict(zip(libraries, (line == "0" for line in run.stdout.splitlines()), strict=True))
    for path in paths:
        if path.suffix == ".prog":
            try:
                ended = subprocess.run([path], capture_output=True, env=clean, timeout=20, check=False)
                right[path] = ended.returncode == 0
            except (OSError, subprocess.TimeoutExpired):
                right[path] = False
    return [right[path] for path in paths]


def edit_by_relink(path: Path, edit: ElfEdit, sandbox: Sandbox, counted: Counter[str]) -> None:
    """Let relink edit the file as it always does; an executable also has to start on an old kernel afterwards."""
    original = path.read_bytes()
    before = read_image(original, path.name)
    try:
        apply_edit(path, edit, before, original, sandbox)
    except EditError as error:
        raise AssertionError(f"{path}: {error.issues or error.message}") from error
    if before.interpreter is not None:
        old_kernel.run(path.read_bytes())
        counted["programs that Linux 4.18 would run, by its source"] += 1


def main(scratch: Path, seed: int, count: int, patchelf: str | None) -> dict[str, int]:
    """Edit `count` files one to three times each.

    Raises AssertionError if relink's own edit does not load, or a file that was damaged by `patchelf` passes the checks.
    """
    rng = random.Random(seed)
    inputs = Inputs(scratch, rng)
    sandbox = find_sandbox()
    counted: Counter[str] = Counter(files=count)
    found: dict[Path, list[str]] = {}
    for number in range(count):
        path = inputs.make(number)
        image = read_image(path.read_bytes(), path.name)
        issues: list[str] | None = []
        for left in reversed(range(rng.randrange(1, 4))):
            edit = inputs.edit(image.needed, image.interpreter, last=left == 0)
            image = predict_edit(image, edit)
            if patchelf is None:
                edit_by_relink(path, edit, sandbox, counted)
            else:
                more = edit_by(patchelf, path, edit)
                issues = None if more is None else [*(issues or ()), *more]
                if issues is None:
                    break
            counted["edits"] += 1
        if issues is None:
            counted["files that patchelf refused"] += 1
        else:
            found[path] = issues
    for path, right in zip(found, answers(inputs, list(found)), strict=True):
        assert right or found[path], f"{path}: it does not load, and no check saw why"
        if not found[path]:
            counted["files that load and pass the checks"] += 1
        elif right:
            counted["files that load and do not pass"] += 1
        else:
            counted["files that do not load and do not pass"] += 1
        path.unlink()
    return dict(counted)


if __name__ == "__main__":
    given = sys.argv[4] if len(sys.argv) > 4 else None
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), given)))
