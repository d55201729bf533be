"""Members that dlopen refuses since they, or what they need, ask for an executable stack: RLK116, by one rule for every target.

glibc 2.41 and newer make no stack executable that is not so yet (NEWS of 2.41; elf/dl-load.c). A program that starts with such a
library still gets one, so no dry run of the real loader shows the refusal: there a member is preloaded, or is the program itself.
Takes a wheel, and what each member maps, as planned or as the real loader says.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping

from relink.elf.constants import EM_X86_64
from relink.elf.image import Image
from relink.loader.loading import EXECUTABLE_STACK, asks_executable_stack, has_stack_flag
from relink.planning.resolve.context import ResolveContext
from relink.providers.prefix import soname_stem
from relink.system.findings.model import Finding, finding
from relink.wheel.source import MemberSource, read_member

# Python files that are looked at; PyTorch has 2,000.
MODULES = 20_000
# Bytes of these files, all together.
MODULE_BYTES = 64 << 20
# The most members whose names are searched for. Where there are more, it is not known what loads them.
_SEARCHED = 8
_PYTHON = (".py", ".pth")
_WORD = re.compile(rb"[A-Za-z0-9_+-]+")


def stack_findings(
    source: MemberSource,
    context: ResolveContext,
    closures: Mapping[str, Iterable[str]],
    cleared: Iterable[str] = (),
) -> Iterator[Finding]:
    """Yield RLK116: an error for members that an import loads, directly or by another library; else a warning. And RLK135.

    A Python module is loaded, and what the profile says that the package loads, and what another library or a Python file of the
    wheel names: that covers NEEDED, dlopen and ctypes, and every entry point, since that is an import. A program may need it.

    :param closures: by member the paths of what loading it maps, as they are shown.
    :param cleared: the members whose flag is cleared.
    """
    for member in cleared:
        why = _why_needed(source, member, context.images[member])
        yield (
            finding("RLK135", member, f"--clear-execstack: {why}", _REMEDY_NEEDED, level="error")
            if why
            else finding("RLK135", member, f"asks for no executable stack any more: {_UNSEEN}")
        )
    python = context.target.python
    if not context.target.refuses_stacks or (python and _asks(context.files.open(python).image)):
        return
    shown = {context.layout.shown(context.layout.path_of(name)): name for name in context.images}
    asking: dict[str, str | None] = {}
    for member, paths in closures.items():
        if context.images[member].is_executable:
            continue
        if asks_executable_stack(context.images[member]):
            asking[member] = None
            continue
        # A member that asks for such a stack has a finding of its own.
        outside = (path for path in paths if posixpath.normpath(path) not in shown)
        if asked := [path for path in outside if _asks(context.files.open(path).image)]:
            asking[member] = asked[0]
    reasons = {member: _why_loaded(context, member) for member in asking}
    open_members = [member for member, why in reasons.items() if why is None]
    if len(open_members) > _SEARCHED:
        many = f"more than {_SEARCHED} members ask for it, so what loads them was not searched for"
        reasons |= dict.fromkeys(open_members, many)
    elif open_members:
        reasons |= _named_by(source, context, open_members)
    for member, library in asking.items():
        what = "it" if library is None else f"{library}, which it needs"
        text = f"dlopen does not load {what}: {EXECUTABLE_STACK}; "
        if why := reasons[member]:
            step, remedy = None, _REMEDY
            if library is None and has_stack_flag(context.images[member]):
                needs = _why_needed(source, member, context.images[member])
                step = None if needs else f"--clear-execstack {shlex.quote(member)}"
                remedy += f" {needs}." if needs else f" {step} clears the flag: {_UNSEEN}."
            yield finding("RLK116", member, text + why, remedy, step=step)
        else:
            text += "it is no Python module, and no other library and no Python file of the wheel names it"
            yield finding("RLK116", member, text, _REMEDY_UNUSED, level="warning")


_REMEDY = (
    "glibc 2.41 and newer dlopen no library that asks for an executable stack: its maker has to build it without (ld -z "
    "noexecstack). Where nothing loads it after all, --ignore with its path leaves this finding out."
)
_REMEDY_NEEDED = "Leave --clear-execstack out; its maker has to build it without (ld -z noexecstack)."
_REMEDY_UNUSED = "Nothing, if programs alone load it: one that is started with it gets such a stack."


_UNSEEN = "no code that writes functions to the stack (trampolines) is in it; what a library does by other means is not seen"
# The most bytes of a member in which trampolines are searched for.
CODE_BYTES = 256 << 20
# What GCC (ix86_trampoline_init: `jmp *%r11; nop` as one number) and LLVM (LowerINIT_TRAMPOLINE: the start of `movabs $F, %r11`)
# store on the stack of x86-64.
_TRAMPOLINE = re.compile(rb"\x49\xff\xe3\x90|\x66\xc7.{1,6}?\x49\xbb", re.DOTALL)


def _why_needed(source: MemberSource, member: str, image: Image) -> str | None:
    """Return why a member may need the executable stack; None where nothing of it is seen."""
    if image.header.machine != EM_X86_64:
        return "What it needs the stack for is known of x86-64 only"
    if source.members[member].size > CODE_BYTES:
        return "It is too large to be searched for code that writes functions to the stack (trampolines)"
    if _TRAMPOLINE.search(read_member(source, member, CODE_BYTES)):
        return "It has code that writes functions to the stack (trampolines), and would crash without"
    return None


def _asks(image: Image | None) -> bool:
    return image is not None and asks_executable_stack(image)


def _why_loaded(context: ResolveContext, member: str) -> str | None:
    """Return why a member is loaded, from itself and from the profile; None where neither says so."""
    # The function that Python calls in an extension module (PEP 489).
    if any(name.startswith("PyInit_") for name in context.tables[member].exports):
        return "it is a Python module"
    profile, image = context.profile, context.images[member]
    names = (image.soname or "", posixpath.basename(member))
    opened = (glob for entry in profile.dlopen for glob in entry.sonames)
    if (
        member in profile.preload
        or profile.is_variant(member)
        or profile.why_optional(member)
        or any(fnmatch.fnmatchcase(member, glob) for glob in profile.brings)
        or any(fnmatch.fnmatchcase(name, glob) for glob in opened for name in names)
    ):
        return f"profile {profile.name} says that the package loads it"
    return None


def _named_by(source: MemberSource, context: ResolveContext, members: Iterable[str]) -> dict[str, str]:
    """Return the members that are named by a library (NEEDED, dlopen) or a Python file, each with a sentence that says by which.

    A name is looked for without its versions and, in Python files, without ``.so``. A program that needs a member starts with it.
    """
    modules = [file for file in source.members if file.endswith(_PYTHON)]
    if len(modules) > MODULES or sum(source.members[file].size for file in modules) > MODULE_BYTES:
        return dict.fromkeys(members, "the wheel has more Python code than is searched for its name")
    stems = {
        member: _stems((posixpath.basename(member), context.images[member].soname)) for member in members
    }
    named: dict[str, str] = {}
    for file, image in context.images.items():
        needed = () if image.is_executable else image.needed
        wanted = _stems((*needed, *context.opens.get(file, ()))) - _stems(
            (posixpath.basename(file), image.soname)
        )
        for member in members:
            if stems[member] & wanted:
                named.setdefault(member, f"{file} names it")
    # A set of all words of 300 files takes 0.1 s, so it is made where a word is among the bytes.
    words = {
        member: {stem.partition(".")[0].encode(errors="replace") for stem in stems[member]}
        for member in members
    }
    for file in modules:
        content = read_member(source, file, MODULE_BYTES)
        for member in members:
            if any(word in content for word in words[member]) and words[member] & {*_WORD.findall(content)}:
                named.setdefault(member, f"{file} names it")
    return named


def _stems(names: Iterable[str | None]) -> set[str]:
    return {soname_stem(name) for name in names if name}
