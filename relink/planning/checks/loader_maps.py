"""Findings about what the real loader mapped for the members of a wheel as it is: what it does not find, and what stands in.

The plan inside of a wheel is a claim of whoever made the wheel. It adds findings here, and lowers and removes none: what may be
missing is what the user says (``--allow-missing``).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

from relink.loader.dryrun import LoaderMap
from relink.planning.model.model import Plan
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.findings.missing_libraries import missing_remedy
from relink.planning.resolve.proof import system_path
from relink.planning.resolve.served_parts import has_vendors, left_out, variant_findings
from relink.planning.resolve.unserved_edges import assumed_kind
from relink.planning.siblings import assumed_finding, sibling_of
from relink.system.findings.model import Finding, finding

__all__ = ["idle_findings", "unfound_findings"]


def unfound_findings(maps: Mapping[str, LoaderMap], context: ResolveContext) -> Iterator[Finding]:
    """Yield what the loader does not find: an error, unless the user allows it or another part of the package does without it.

    As for a plan, a variant or a member that the package does without is left only where another gets the vendor's libraries.
    """
    early = {
        context.images[member].soname: member
        for member in context.profile.preload
        if member in context.images
    }
    brought = {name for mapped in maps.values() for name in mapped.missing if assumed_kind(context, name)}
    lacking = {
        member: [name for name in dict.fromkeys(mapped.missing) if name not in brought and name not in early]
        for member, mapped in maps.items()
    }
    complete = {
        member: mapped.objects for member, mapped in maps.items() if not (lacking[member] or mapped.died)
    }
    served = any(has_vendors(context, objects) for objects in complete.values())
    by_soname: dict[str, list[str]] = {}
    for member, mapped in maps.items():
        text = f"the loader does not find {', '.join(lacking[member])}"
        if lacking[member] and context.profile.is_variant(member):
            yield finding("RLK103", member, text, profile=context.profile.name)
        elif lacking[member] and served and context.profile.why_optional(member):
            yield left_out(context, member, text, lacking[member])
        else:
            for name in dict.fromkeys(mapped.missing):
                by_soname.setdefault(name, []).append(member)
    for name, members in by_soname.items():
        sibling = sibling_of(context.siblings, name)
        if sibling is not None and sibling.directory is None:
            yield assumed_finding(sibling, [name], members)
            continue
        text = f"needed in the closure of {', '.join(members)}; the loader does not find it"
        if name in early:
            text += f" by itself, and the package loads {early[name]} before"
            yield finding("RLK115", name, text, profile=context.profile.name)
        elif name in brought:
            yield finding("RLK102", name, text)
        else:
            yield finding("RLK101", name, text, missing_remedy(context, name))
    yield from variant_findings(context, filter(context.profile.is_variant, maps), complete)


def idle_findings(maps: Mapping[str, LoaderMap], context: ResolveContext, plan: Plan) -> Iterator[Finding]:
    """Yield RLK127: stubs whose library is there now. The loader takes it instead, or would if they were gone."""
    members = [member for member in maps if not context.images[member].is_executable]
    for stub in plan.stubs:
        own = context.layout.shown(context.layout.path_of(stub.path))
        objects = (entry for mapped in maps.values() for entry in mapped.objects)
        paths = {posixpath.normpath(path) for name, path in objects if name == stub.soname}
        if real := sorted(paths - {own}):
            yield finding("RLK127", stub.soname, f"the loader takes {real[0]}; the stub in the wheel is idle")
        elif members and (path := system_path(context, members[0], stub.soname)):
            yield finding("RLK127", stub.soname, f"{path} is there now, and the stub in the wheel is taken")
