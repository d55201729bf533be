"""relink's table of GPU compatibility in the form that nix/resolve.nix reads, so that coverage is checked at evaluation."""

from __future__ import annotations

import json

from relink.gpu import SPIRV, table

__all__ = ["compatibility_json"]


def compatibility_json() -> str:
    """Return nix/isa.json: the features of each processor, and the members of each generic target with their versions,
    and the processor whose code a patched HIP runtime takes.
    """
    known = table()
    data = {
        "comment": "Generated from profiles/rocm/isa.toml by relink.report.nix.compatibility; tests/nix holds it to that.",
        "spirv": SPIRV,
        "processors": {name: list(found.features) for name, found in sorted(known.processors.items())},
        "extended": {
            name: other
            for row in known.workarounds
            if row.patched
            for name in row.processors
            if (other := known.stand_in(name))
        },
        "generics": {
            name: dict(sorted(found.members.items())) for name, found in sorted(known.generics.items())
        },
    }
    return json.dumps(data, indent=1) + "\n"
