"""What to do about a missing architecture, best first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from relink.gpu.amd.file_coverage import LibraryCoverage
from relink.gpu.amd.isa_table import table
from relink.gpu.amd.target_id import sort_key
from relink.gpu.coverage import Coverage, TargetId


@dataclass(frozen=True, slots=True)
class Remedy:
    """One way out.

    :ivar kind: release, generic, override or rebuild.
    :ivar workaround: AMD does not support it; whoever shows it says so.
    """

    kind: str
    text: str
    workaround: bool = False

    def to_json(self) -> dict[str, object]:
        """Return the fields."""
        return asdict(self)


def remedies(
    agent: TargetId,
    coverages: Iterable[Coverage],
    *,
    releases: Sequence[str] = (),
    runtime_generic: bool | None = None,
) -> tuple[Remedy, ...]:
    """Return the remedies for `agent` in the order they should be tried; none when all of `coverages` have it.

    `releases` are other releases of the wheel that have it (the profile knows them). `runtime_generic` says whether
    the HIP runtime takes generic targets (None: unknown); where it does not, code that is there only as a generic
    target counts as lacking.
    """
    coverages = tuple(coverages)
    levels = [coverage.level(agent) for coverage in coverages]
    generic = next((g.name for g in table().generics.values() if agent.processor in g.members), None)
    unloadable = [runtime_generic is False and "generic" in level.via for level in levels]
    lacking = [
        coverage
        for coverage, level, blocked in zip(coverages, levels, unloadable, strict=True)
        if blocked or level.state in ("none", "partial", "conditional")
    ]
    if not lacking:
        return ()
    found = [Remedy("release", f"use {release}: it has code for {agent.processor}") for release in releases]
    if any(unloadable):
        names = ", ".join(_name(c) for c, blocked in zip(coverages, unloadable, strict=True) if blocked)
        found.append(
            Remedy(
                "generic",
                f"{names}: code for {agent.processor} is there as {generic}, which ROCm 6.4 or newer loads",
            )
        )
    for row in table().workarounds:
        if agent.processor not in row.processors:
            continue
        if all(c.level(TargetId(row.stands_in)).usable for c in coverages if c.restricts):
            text = (
                f"set HSA_OVERRIDE_GFX_VERSION={row.override}, a workaround that AMD does not support: every library of "
                f"the process then takes the GPU for {row.stands_in} (source: {row.source})"
            )
            found.append(Remedy("override", text, workaround=True))
    for coverage in lacking:
        kept = [p for p in coverage.processors() if coverage.level(TargetId(p)).usable]
        targets = ";".join(sorted({*kept, agent.processor}, key=sort_key))
        wider = f" (or {generic} for the whole family)" if generic and runtime_generic else ""
        found.append(Remedy("rebuild", f"rebuild {_name(coverage)} with GPU_TARGETS={targets}{wider}"))
    return tuple(found)


def _name(coverage: Coverage) -> str:
    return coverage.name if isinstance(coverage, LibraryCoverage) else os.path.basename(coverage.path)
