"""What `relink doctor` prints."""

from __future__ import annotations

from collections.abc import Iterator

from relink.gpu import Capability
from relink.planning.checks.machine import Diagnosis, PrefixHealth
from relink.report.lines import Line
from relink.report.text import findings_text
from relink.system.text import join_with_and


def doctor_text(diagnosis: Diagnosis) -> list[Line]:
    """Return what `relink doctor` prints: the machine, each prefix, then what is wrong."""
    machine = diagnosis.machine
    lines = [Line("This machine", style="bold")]
    for gpu in machine.devices.gpus:
        name = ", ".join(gpu.products) or "unknown product"
        really = f"; really {gpu.physical}" if gpu.overridden else ""
        lines.append(Line(f"  GPU {gpu.target}, node {gpu.node}: {name}; xnack unknown{really}"))
    if not machine.devices.gpus:
        lines.append(Line("  no GPU", style="red"))
    for node in machine.nodes:
        state = "accessible" if node.accessible else "not accessible" if node.exists else "not there"
        group = f" (group {node.group})" if node.group else ""
        lines.append(Line(f"  {node.path}: {state}{group}", style="" if node.accessible else "red"))
    for prefix in diagnosis.prefixes:
        lines += _prefix(prefix)
    lines += [Line(), *findings_text(diagnosis.findings, verbose=True)]
    return [*lines, Line("The packages of an environment: relink check")]


def _prefix(prefix: PrefixHealth) -> Iterator[Line]:
    release = f"ROCm {prefix.release} (by {prefix.evidence})" if prefix.release else "ROCm, release unknown"
    yield Line()
    yield Line.assemble((prefix.path, "bold"), f"  {release}")
    for name, value in _capability(prefix.runtime):
        yield Line(f"  {name}: {value}", style="magenta" if value == "unknown" else "")
    for group in prefix.runtime_groups:
        names = ", ".join(dict.fromkeys(library.name for library in group.libraries))
        yield Line(f"  with {group.hip or 'no HIP runtime'}: {names}")
        yield Line(f"    all cover {join_with_and(group.together.targets) or 'nothing together'}")


def _capability(runtime: Capability) -> Iterator[tuple[str, str]]:
    facts = runtime.to_json()
    for key, name in (
        ("hip", "HIP runtime"),
        ("comgr", "comgr interface"),
        ("ccob", "compressed bundles up to version"),
        ("code_object", "code objects up to version"),
        ("generic", "generic targets"),
        ("spirv", "SPIR-V code"),
        ("kpack", "kpack archives"),
    ):
        value = facts[key]
        yield name, ("yes" if value else "no") if isinstance(value, bool) else str(value)
    agents = runtime.agents
    yield "GPUs that the HSA runtime knows", f"{len(agents)}, up to {agents[-1]}" if agents else "unknown"
