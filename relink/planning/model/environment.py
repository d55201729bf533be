"""What was found about the distributions of an environment as they are installed."""

from __future__ import annotations

from dataclasses import dataclass

from relink.system.findings.model import Finding, Level

__all__ = ["Checked", "EnvironmentCheck"]


@dataclass(frozen=True, slots=True)
class Checked:
    """One distribution with native code.

    :ivar text: what is to be said of it in one sentence.
    :ivar relinked: whether relink has written it.
    :ivar runtimes: the paths of the vendor's runtime that loading it maps.
    :ivar needs: a file of it has a library of the vendor's as NEEDED.
    :ivar mendable: not all of these are found, and it is the vendor's wheel: repair may help.
    """

    name: str
    version: str
    level: Level
    text: str
    relinked: bool = False
    runtimes: tuple[str, ...] = ()
    needs: bool = False
    mendable: bool = False
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class EnvironmentCheck:
    """What was found about an environment.

    :ivar distributions: those with native code, by name.
    :ivar findings: about several distributions together.
    :ivar read: files that were read.
    """

    prefix: str
    distributions: tuple[Checked, ...]
    findings: tuple[Finding, ...] = ()
    read: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is an error."""
        levels = [checked.level for checked in self.distributions] + [found.level for found in self.findings]
        return "error" not in levels

    @property
    def mendable(self) -> tuple[str, ...]:
        """The names of the distributions that `relink repair` may help."""
        return tuple(checked.name for checked in self.distributions if checked.mendable)
