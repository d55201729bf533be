"""GPUs, and how far code covers them: the words that every vendor's files and libraries are described in.

No content of a file raises an error: what is damaged is described in `problems` of what was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:  # slow to load
    from relink.system.findings.model import Finding

# From worst to best; the first that applies to any of several parts is that of the whole.
STATES = ("none", "partial", "unknown", "conditional", "slow", "jit", "full")


# A NamedTuple, since it is hashed too often for a dataclass, as are code targets.
class TargetId(NamedTuple):
    """A processor and the features that are named, alphabetical; an unnamed feature is *any* (code) or *unknown* (agent)."""

    processor: str
    features: tuple[tuple[str, bool], ...] = ()

    def __str__(self) -> str:
        return ":".join((self.processor, *(name + ("+" if on else "-") for name, on in self.features)))

    def feature(self, name: str) -> bool | None:
        """Return whether the feature is on or off, None when it is not named."""
        return dict(self.features).get(name)

    def with_features(self, **values: bool | None) -> TargetId:
        """Return the same processor with these features set (None: unnamed)."""
        merged = {**dict(self.features), **values}
        return TargetId(self.processor, tuple(sorted((k, v) for k, v in merged.items() if v is not None)))


class CoverageLevel(msgspec.Struct, frozen=True):
    """How far a GPU is covered.

    :ivar state: none; partial (`count` of `total` bundles have code); conditional (only with the `configurations`
        named, xnack on, say); slow (untuned kernels); jit (compiled on first use); unknown; full.
    :ivar via: native, generic, spirv: how the code is found.
    :ivar note: the reason in words, where there is one to give.
    """

    state: str
    count: int = 0
    total: int = 0
    configurations: tuple[str, ...] = ()
    via: tuple[str, ...] = ()
    note: str = ""

    @property
    def usable(self) -> bool:
        """Whether programs run on this GPU, if slowly."""
        return self.state in ("full", "slow", "jit")

    def __str__(self) -> str:
        if self.state == "partial":
            return f"partial ({self.count} of {self.total})"
        if self.state == "conditional":
            return f"only as {', '.join(self.configurations)}"
        return self.state


class RequestedGpu(msgspec.Struct, frozen=True):
    """A GPU that a wheel is to run on.

    :ivar vendor: the name of the vendor whose GPU it is.
    :ivar name: what the user called it, where that is not the target id.
    :ivar local: it is in this machine; `physical` is its processor where the variable `overridden_by` makes it pass for another.
    :ivar numbers: what the runtime calls those of this machine that are such.
    :ivar asked: the user asks for it; else it was seen in this machine, and what it lacks is no error.
    """

    target: TargetId
    name: str = ""
    products: tuple[str, ...] = ()
    local: bool = False
    physical: str = ""
    asked: bool = True
    vendor: str = ""
    overridden_by: str = ""
    numbers: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.physical:
            return f"{self.target} ({self.physical} by {self.overridden_by})"
        called = self.name or ", ".join(self.products)
        return f"{self.target} ({called})" if called else str(self.target)


class FileCode(Protocol):
    """The device code of one file, as the vendor whose code it is has read it."""

    @property
    def vendor(self) -> str:
        """The vendor's name."""

    @property
    def present(self) -> bool:
        """Whether there is any that a GPU needs, in the file or in archives."""

    @property
    def in_archives(self) -> bool:
        """Whether it lies in archives beside the file."""

    @property
    def is_jit(self) -> bool:
        """Whether some of it is compiled on first use, for GPUs of the future too."""


class Coverage(Protocol):
    """Which GPUs a file, a library or several kernel files have code for."""

    @property
    def path(self) -> str:
        """The file's name in messages about GPUs that it rules out."""

    @property
    def restricts(self) -> bool:
        """Whether an architecture missing here is missing from the whole."""

    @property
    def summary(self) -> str:
        """The kind of code and how much of it there is, in a few words."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the code, one sentence each."""

    def level(self, agent: TargetId) -> CoverageLevel:
        """Return how far `agent` is covered."""

    def processors(self) -> tuple[str, ...]:
        """The processors that have code here, members of generic targets included."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""


class Intersection(msgspec.Struct, frozen=True):
    """What several files or libraries cover together.

    :ivar targets: processors that all cover; `conditional`: those that all cover under a condition.
    :ivar removed: processors that at least one has and at least one lacks → the paths of those, and how far they have it.
    """

    targets: tuple[str, ...]
    conditional: tuple[str, ...]
    removed: Mapping[str, Sequence[tuple[str, CoverageLevel]]]

    def to_json(self) -> dict[str, Any]:
        """Return targets, and by whom the others were removed."""
        return {
            "targets": list(self.targets),
            "conditional": list(self.conditional),
            "removed": {name: {path: str(level) for path, level in by} for name, by in self.removed.items()},
        }


class Group(msgspec.Struct, frozen=True):
    """Files that are used together: those of one runtime, or one variant with what all variants share.

    :ivar name: the soname of the runtime, or the path of the variant; empty where there is one group.
    :ivar together: what all of them cover.
    """

    name: str
    items: tuple[Coverage, ...]
    together: Intersection
    is_runtime: bool = False

    def lacking(self, agent: TargetId) -> tuple[tuple[Coverage, CoverageLevel], ...]:
        """Return what takes `agent` away, and how far it has it."""
        levels = [(item, item.level(agent)) for item in self.items if item.restricts]
        return tuple((item, level) for item, level in levels if not level.usable)


class Survey(msgspec.Struct, frozen=True):
    """What a vendor's reader found in one place.

    :ivar vendor: the vendor's name.
    :ivar kind: wheel, directory or file.
    :ivar items: the files that hold device code, or are known to take theirs from elsewhere.
    :ivar groups: each is enough for a GPU: the place covers what one of them covers.
    :ivar example: a GPU, for what is the same for all.
    :ivar kernel_files: the items that are a choice: of a directory's kernel files a program loads one.
    :ivar side: kernel files of libraries that are not there, as JSON data.
    :ivar plain: names of ELF files without device code.
    :ivar read: number of device code files that were read, kernel files included.
    """

    vendor: str
    path: str
    kind: str
    items: tuple[Coverage, ...]
    groups: tuple[Group, ...]
    example: TargetId
    kernel_files: tuple[Coverage, ...] = ()
    side: tuple[Mapping[str, Any], ...] = ()
    plain: tuple[str, ...] = ()
    read: int = 0
    problems: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        """Whether anything here takes architectures away."""
        return any(item.restricts for item in self.items if item not in self.kernel_files)

    def covers(self, agent: TargetId) -> bool:
        """Whether `agent` is covered by at least one group; where nothing restricts, whether files are there for it."""
        if self.known:
            return any(not group.lacking(agent) for group in self.groups)
        return not self.kernel_files or any(item.level(agent).usable for item in self.kernel_files)

    def to_json(self, agents: Iterable[TargetId] = ()) -> dict[str, Any]:
        """Return the survey as JSON data (``relink.gpu/1``)."""
        return {
            "schema": "relink.gpu/1",
            "path": self.path,
            "kind": self.kind,
            "read": self.read,
            "items": [item.to_json() for item in self.items],
            "groups": [{"name": group.name, **group.together.to_json()} for group in self.groups],
            "side_files": list(self.side),
            "without_code": list(self.plain),
            "gpus": [
                {
                    "target": str(agent),
                    "covered": self.covers(agent),
                    "levels": {item.path: str(item.level(agent)) for item in self.items},
                }
                for agent in agents
            ],
            "problems": list(self.problems),
        }


class GpuPlan(msgspec.Struct, frozen=True):
    """The report's ``isa`` object and the findings behind it."""

    block: dict[str, Any]
    findings: tuple[Finding, ...] = ()
