"""What a Python says of itself: which file it is, and what decides which wheels it installs."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Mapping

import msgspec

from relink.system.bounded_json import parse_json
from relink.system.errors import TargetError
from relink.system.programs import NoAnswerError, ask_program

NIXOS_STUB = (
    "the stub that NixOS has where others have the loader: no program that was built for them starts; take a Python of nixpkgs, "
    "or set programs.nix-ld.enable = true"
)
"""What nixpkgs' stub-ld is, for a sentence."""

# Seconds that a Python may take to answer; it takes 20 ms.
_TIMEOUT = 30
# In words that Python 3.6 knows, too. /proc/self/exe: the kernel takes $ORIGIN of a program from there. Importing `site` under -S
# runs nothing of it; a virtual environment is found as site.venv() finds it, by the pyvenv.cfg beside or above the program, and
# sysconfig has a scheme for it since Python 3.11. The order is that of site.main(); what .pth files name is read as by
# site.addpackage(), but no line of them is executed. Where an installer puts a wheel: pip's decide_user_install().
_QUESTION = """
import importlib.machinery, json, os, site, sys, sysconfig
program = os.path.dirname(os.path.abspath(sys.executable))
home = next((at for at in (program, os.path.dirname(program)) if os.path.isfile(os.path.join(at, "pyvenv.cfg"))), None)
scheme = [name for name in ("venv", "posix_prefix") if home and name in sysconfig.get_scheme_names()][:1]
paths = sysconfig.get_paths(*scheme, vars={"base": home, "platbase": home} if home else None)
user_base, no_user = sys.argv[1:]
prefix, more, user = sys.prefix, [], not no_user
if home is not None:
    with open(os.path.join(home, "pyvenv.cfg"), encoding="utf-8") as file:
        said = dict((part.strip().lower() for part in line.split("=", 1)) for line in file if "=" in line)
    layered = said.get("include-system-site-packages") == "true"
    prefix, more, user = home, [sys.base_prefix] if layered else [], user and layered
    sys.prefix = sys.exec_prefix = home  # as site.venv() does: Debian's site has other directories where both prefixes are one
if user_base:
    os.environ["PYTHONUSERBASE"] = user_base
mine = [site.getusersitepackages()] if user else []
own = site.getsitepackages([prefix])
places = own + mine + site.getsitepackages(more) if home is not None else mine + own
def named(at):
    for name in sorted(os.listdir(at)):
        path = os.path.join(at, name)
        if name.endswith(".pth") and not name.startswith(".") and os.path.isfile(path) and os.access(path, os.R_OK):
            with open(path, "rb") as file:
                lines = file.read(65536).decode("utf-8-sig", "replace").splitlines()
            for line in lines:
                if line.strip() and not line.startswith(("#", "import ", "import\\t")):
                    yield os.path.abspath(os.path.join(at, line.rstrip()))
def writable(at):
    return os.access(at, os.W_OK) if os.path.exists(at) else writable(os.path.dirname(at))
into = next((at for at in own if os.path.isdir(at)), own[0]) if home is not None else sysconfig.get_path("platlib")
if home is None and mine and not writable(into):
    into = mine[0]
found = [to for at in places if os.path.isdir(at) for to in [at] + [to for to in named(at) if os.path.isdir(to)]]
print(json.dumps({
    "file": os.readlink("/proc/self/exe"),
    "implementation": sys.implementation.name,
    "version": sys.version_info[:2],
    "micro": sys.version_info[2],
    "debug": hasattr(sys, "gettotalrefcount"),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "soabi": sysconfig.get_config_var("SOABI") or "",
    "site_packages": sorted(set(found), key=found.index),
    "installs_into": into,
    "prefix": prefix,
    "standard": sys.path,
    "suffixes": importlib.machinery.EXTENSION_SUFFIXES,
    "builtins": sys.builtin_module_names,
    "distributions": list(dict.fromkeys([paths["purelib"], paths["platlib"]])),
    "managed": prefix == sys.base_prefix and os.path.exists(os.path.join(paths["stdlib"], "EXTERNALLY-MANAGED")),
    "full_version": sys.version.split()[0],
}))
"""


class PythonFacts(msgspec.Struct, frozen=True):
    """One Python interpreter.

    :ivar file: the executable file, symbolic links resolved; that of a virtual environment is the one it was made with.
    :ivar implementation: ``cpython``, ``pypy``.
    :ivar version: major and minor.
    :ivar soabi: sysconfig's SOABI: what stands between the name and ``.so`` of an extension module.
    :ivar site_packages: the directories that it has installed packages in, in the order in which it looks: of a virtual
        environment, of the user, of the system, and those that .pth files name.
    :ivar installs_into: the one that an installer puts a wheel into.
    :ivar prefix: sys.prefix.
    :ivar standard: the directories of its standard library, as in sys.path.
    :ivar suffixes: endings of extension modules, in the order in which they are tried.
    :ivar builtins: the modules inside of the program.
    :ivar distributions: the directories that its installation scheme has for them: of modules, and of extension modules.
    :ivar managed: the system's package manager keeps it (PEP 668).
    :ivar full_version: as platform.python_version() has it.
    :ivar micro: the third part of its version.
    """

    file: str
    implementation: str
    version: tuple[int, int]
    debug: bool = False
    free_threaded: bool = False
    soabi: str = ""
    site_packages: tuple[str, ...] = ()
    installs_into: str = ""
    prefix: str = ""
    standard: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    builtins: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()
    managed: bool = False
    full_version: str = ""
    micro: int = 0

    @property
    def directory_version(self) -> str:
        """The version as the names of directories have it: ``3.12``, or ``3.13t`` of a free-threaded build."""
        return f"{self.version[0]}.{self.version[1]}{'t' if self.free_threaded else ''}"

    @property
    def shown(self) -> str:
        """``Python 3.12``, or ``pypy 3.10``."""
        name = "Python" if self.implementation == "cpython" else self.implementation
        return f"{name} {self.directory_version}"


def active_python(environment: Mapping[str, str]) -> str | None:
    """Return the Python of the virtual environment that is active ($VIRTUAL_ENV), or None."""
    directory = environment.get("VIRTUAL_ENV")
    return os.path.join(directory, "bin", "python") if directory else None


def ask_python(python: str, named_by: str = "--python") -> PythonFacts:
    """Run a Python, without anything of its site-packages or of the current directory, and return what it says.

    A process asks one Python once: to start it takes longer than all else that is done for a small wheel before the plan.

    :param python: its path, or a name on PATH.
    :param named_by: what the user named it by, for messages.
    :raises TargetError: it cannot be run, or is none.
    """
    user = tuple(os.environ.get(name, "") for name in ("PYTHONUSERBASE", "PYTHONNOUSERSITE"))
    return _ask(python, named_by, user, _identity(python))


def _identity(python: str) -> tuple[int, ...] | None:
    """What tells the file of a name from another one that has the name later; None where there is none."""
    try:
        status = os.stat(shutil.which(python) or python)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@functools.cache
def _ask(python: str, named_by: str, user: tuple[str, ...], _: tuple[int, ...] | None) -> PythonFacts:
    shown = f"{named_by} {python}"
    try:
        # -I: nothing of the current directory is imported. -S: no line of a .pth file runs.
        run = ask_program([python, "-I", "-S", "-c", _QUESTION, *user], timeout=_TIMEOUT)
    except NoAnswerError as error:
        raise TargetError(f"{shown}: {error}; name a Python interpreter by --python") from error
    facts = _facts(run.stdout) if run.returncode == 0 else None
    if facts is None and "stub-ld" in run.stderr:
        raise TargetError(f"{shown}: its loader is {NIXOS_STUB}")
    if facts is None:
        reason = run.stderr.strip()[:200] or "what it prints is not what was asked for"
        raise TargetError(f"{shown}: is not a working Python ({reason}); name another by --python")
    return facts


def _facts(answer: str) -> PythonFacts | None:
    try:
        return msgspec.convert(parse_json(answer), PythonFacts)
    except (ValueError, msgspec.ValidationError):
        return None
