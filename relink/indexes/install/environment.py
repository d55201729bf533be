"""An environment that wheels are installed into: its Python, its directories, and whether others keep it.

Source of the rules: "Externally Managed Environments" of the PyPA specifications (PEP 668).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from relink.loader.python import FIND_HOME, active_python
from relink.system.bounded_json import parse_json
from relink.system.errors import TargetError, UsageError
from relink.system.programs import NoAnswerError, ask_program

_TOOLS = {"pipx_metadata.json": "pipx", "uv-receipt.toml": "uv"}
"""What pipx and `uv tool` leave in the environments that they make; relink itself may run in one."""
# Under -S no line of a .pth file runs. A virtual environment is found as site.venv() finds it, by the pyvenv.cfg beside or above
# the program; sysconfig has a scheme for it since Python 3.11.
_QUESTION = (
    FIND_HOME
    + """
scheme = [name for name in ("venv", "posix_prefix") if home and name in sysconfig.get_scheme_names()][:1]
paths = sysconfig.get_paths(*scheme, vars={"base": home, "platbase": home} if home else None)
print(json.dumps({
    "prefix": home or sys.prefix,
    "base": sys.base_prefix,
    "purelib": paths["purelib"],
    "platlib": paths["platlib"],
    "stdlib": paths["stdlib"],
}))
"""
)


@dataclass(frozen=True, slots=True)
class TargetEnvironment:
    """An environment of Python.

    :ivar python: its Python as it is called there; symbolic links are not resolved, since the environment hangs on the name.
    :ivar prefix: its directory.
    :ivar site: where distributions lie, each directory once.
    """

    python: str
    prefix: Path
    site: tuple[Path, ...]


def find_environment(
    python: str | None, environment: Mapping[str, str], *, changed: bool = True
) -> TargetEnvironment:
    """Return the environment of `python`, or the active one ($VIRTUAL_ENV).

    :param changed: it will be changed: then nobody else may keep it.
    :raises UsageError: none is named, or another program keeps it (PEP 668).
    :raises TargetError: its Python cannot be asked.
    """
    named = python or active_python(environment)
    if named is None:
        raise UsageError(
            "no environment was named: activate a virtual environment, or pass --python PATH; relink's own is never changed"
        )
    said = _ask(named)
    prefix, stdlib = Path(said["prefix"]), Path(said["stdlib"])
    if changed and said["prefix"] == said["base"] and (stdlib / "EXTERNALLY-MANAGED").exists():
        raise UsageError(
            f"{named} is managed by the system's package manager (PEP 668), and relink installs nothing there; make a virtual "
            f"environment: {named} -m venv DIR, then pass --python DIR/bin/python"
        )
    for mark, tool in _TOOLS.items() if changed else ():
        if (prefix / mark).exists():
            raise UsageError(
                f"{named} is of an environment that {tool} has made for a tool of its own, and relink installs nothing "
                "there; pass the Python of an environment of yours by --python"
            )
    site = dict.fromkeys((Path(said["purelib"]), Path(said["platlib"])))
    return TargetEnvironment(os.path.abspath(named) if "/" in named else named, prefix, tuple(site))


def _ask(python: str) -> dict[str, str]:
    try:
        run = ask_program([python, "-I", "-S", "-c", _QUESTION])
    except NoAnswerError as error:
        raise TargetError(f"{python}: {error}; name a Python by --python") from error
    with suppress(ValueError):
        said = parse_json(run.stdout) if run.returncode == 0 else None
        if isinstance(said, dict) and all(isinstance(value, str) for value in said.values()):
            return said
    raise TargetError(f"{python}: is not a working Python; name another by --python")
