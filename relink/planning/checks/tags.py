"""Whether the target's Python would install a wheel: the tags of both, compared.

Takes a wheel's name and a target; gives findings, and the tags that a Python installs. Source of the rules: "Platform
compatibility tags" of the PyPA specifications (PEP 425, PEP 600 for manylinux), as `packaging` has them for the Python that runs.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator

from msgspec.structs import replace
from packaging.tags import Tag, compatible_tags, cpython_tags, generic_tags

from relink.elf.image import machine_name
from relink.loader.python import PythonFacts, active_python, ask_python
from relink.loader.target import Target, interpreter_of
from relink.planning.options import Options
from relink.system.errors import TargetError
from relink.system.findings.model import Finding, finding
from relink.wheel.naming import WheelName
from relink.wheel.source import MemberSource

# PEP 600: the older names of some manylinux tags, by the minor version of glibc 2.
_OLDER_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
# The minor version with which manylinux begins; 17 on other machines.
_FIRST = {"x86_64": 5, "i686": 5}
# The most minor versions of Python 3 that are asked for, for a wheel with abi3.
_NEWER = 20
# The most Pythons of this machine that are run.
_ASKED = 8


def list_supported_tags(python: PythonFacts, glibc: str, machine: str) -> tuple[Tag, ...]:
    """Return the tags that a Python installs, best first.

    :param glibc: the version of the C library that it runs with, ``"2.36"``.
    :param machine: the word for the machine in platform tags, ``x86_64``.
    """
    platforms = list(_platforms(glibc, machine))
    digits = "".join(map(str, python.version))
    if python.implementation == "cpython":
        # t marks a free-threaded build. m (pymalloc) was part of the tag before Python 3.8.
        flags = ("t" if python.free_threaded else "") + ("m" if python.version < (3, 8) else "")
        # A debug build takes wheels for normal builds as well, after its own.
        abis = [f"cp{digits}{flags}d", f"cp{digits}{flags}"] if python.debug else [f"cp{digits}{flags}"]
        own = cpython_tags(python.version, abis, platforms)
        interpreter = f"cp{digits}"
    else:
        short = {"pypy": "pp"}.get(python.implementation, python.implementation)
        abi = "_".join(python.soabi.split("-")[:2]) or "none"
        own = generic_tags(f"{short}{digits}", [abi], platforms)
        interpreter = f"{short}{python.version[0]}"
    return tuple(dict.fromkeys((*own, *compatible_tags(python.version, interpreter, platforms))))


def _platforms(glibc: str, machine: str) -> Iterator[str]:
    numbers = re.match(r"(\d+)\.(\d+)", glibc)
    minor = int(numbers[2]) if numbers and numbers[1] == "2" else 0
    # The newest first, since tags are in the order of preference.
    for number in range(minor, _FIRST.get(machine, 17) - 1, -1):
        yield f"manylinux_2_{number}_{machine}"
        if number in _OLDER_NAMES:
            yield f"{_OLDER_NAMES[number]}_{machine}"
    yield f"linux_{machine}"


def accepts_wheel(python: PythonFacts, name: WheelName, machine: str) -> bool:
    """Whether a Python takes the interpreter and ABI of a wheel; the manylinux tag is another matter, see RLK504."""
    known = _interpreters(python, machine)
    return any((tag.interpreter, tag.abi) in known for tag in replace(name, platform="any").tags)


# Cached, since a page of an index lists many wheels for one Python.
@functools.lru_cache(64)
def _interpreters(python: PythonFacts, machine: str) -> frozenset[tuple[str, str]]:
    return frozenset((tag.interpreter, tag.abi) for tag in list_supported_tags(python, "", machine))


def wheel_tag_findings(source: MemberSource, target: Target, options: Options) -> tuple[Finding, ...]:
    """Return the findings that keep the loading Python from installing a wheel."""
    alone = target.python is None and target.sysroot == "/"
    # Where the loader that was named is the one of this Python, most likely this Python installs the wheel.
    is_own = alone and interpreter_of(sys.executable) == target.interpreter
    own = ask_python(sys.executable) if is_own else None
    named = bool(options.python or active_python(os.environ))
    return tag_findings(source.name, source.path.name, target, named=named, own=own)


def tag_findings(
    name: WheelName, filename: str, target: Target, *, named: bool, own: PythonFacts | None = None
) -> tuple[Finding, ...]:
    """Return the findings that keep the target's Python from installing a wheel.

    :param named: the user named the Python; otherwise it is the one that happens to run relink.
    :param own: the Python that runs relink, where the target was named by its loader: most likely that Python installs it.
    """
    machine = machine_name(target.header.machine)
    if not any(fits_machine(platform, machine) for platform in name.platform.split(".")):
        message = f"is for {name.platform}; the target is Linux with glibc on {machine}"
        musl = "Get the manylinux wheel, which is for glibc." if "musllinux" in name.platform else None
        return (finding("RLK521", filename, message, musl, step=name.fetching),)
    python = target.python_facts
    written = f"{name.python}-{name.abi}"
    if python is None and own is not None and not accepts_wheel(own, name, machine):
        python, named = own, False
    if python is None:
        if any((tag.interpreter, tag.abi) == ("py3", "none") for tag in name.tags):
            return ()
        message = f"its tags {written} were not compared, because no Python of this machine was named"
        return (finding("RLK522", filename, message),)
    if accepts_wheel(python, name, machine):
        return ()
    message = f"is tagged {written}, which {python.shown} does not install"
    # Only those Pythons of this machine are run whose name on PATH says that they may install the wheel.
    pythons = ((path, _facts_of(path)) for path in itertools.islice(_named_like(name), _ASKED))
    fitting = next((path for path, facts in pythons if facts and accepts_wheel(facts, name, machine)), None)
    best = str(list_supported_tags(python, "", "any")[0]).rpartition("-")[0]
    get = f"Get the wheel for {python.shown} ({best})"
    remedy = (
        f"{get}, or pass --python {fitting}." if fitting else f"{get}, or name another Python by --python."
    )
    if named:
        step = f"--python {shlex.quote(fitting)}" if fitting else name.fetching
        return (finding("RLK520", filename, message, remedy, step=step),)
    why = f"{message}: relink runs under it, and no other Python was named"
    use = (
        f"Pass --python {fitting}, if that is to load the result."
        if fitting
        else ("Name the Python that will load the result by --python.")
    )
    return (finding("RLK520", filename, why, use, level="warning", brief=message),)


def fits_machine(platform: str, machine: str) -> bool:
    """Whether a platform tag is one of Linux with glibc on a machine, or ``any``."""
    return (
        platform == "any"
        or re.fullmatch(rf"(?:linux|manylinux(?:1|2010|2014|_\d+_\d+))_{re.escape(machine)}", platform)
        is not None
    )


# Cached, since one command may relink many wheels, and a script of pyenv takes a tenth of a second to answer.
@functools.cache
def _facts_of(path: str) -> PythonFacts | None:
    try:
        return ask_python(path)
    except TargetError:  # a name on PATH that stands for no Python, as pyenv has them
        return None


def _named_like(name: WheelName) -> Iterator[str]:
    """Programs on PATH that are called as a Python of the wheel's version is."""
    seen = set()
    for tag in name.tags:
        match = re.fullmatch(r"(cp|pp|py)3(\d+)", tag.interpreter)
        if match is None:
            continue
        first = int(match[2])
        last = first + _NEWER if tag.abi in ("abi3", "none") else first
        ending = "t" if tag.abi.endswith("t") else ""
        for minor in range(first, last + 1):
            path = shutil.which(f"{'pypy' if match[1] == 'pp' else 'python'}3.{minor}{ending}")
            if path is not None and os.path.realpath(path) not in seen:
                seen.add(os.path.realpath(path))
                yield path
