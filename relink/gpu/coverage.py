"""How far a GPU is covered by code: the words that every vendor's files and libraries are described in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

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


@dataclass(frozen=True, slots=True)
class CoverageLevel:
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


class Coverage(Protocol):
    """What an intersection needs of a file or a library."""

    @property
    def path(self) -> str:
        """The name that a removal shows."""

    @property
    def restricts(self) -> bool:
        """Whether an architecture missing here is missing from the whole."""

    def level(self, agent: TargetId) -> CoverageLevel:
        """Return how far `agent` is covered."""

    def processors(self) -> tuple[str, ...]:
        """The processors that have code here, members of generic targets included."""
