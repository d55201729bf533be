"""Whether the result of a plan runs on a GPU: what the plan reaches is put together, and the wheel's vendor is asked about it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from packaging.utils import canonicalize_name

from relink.gpu.coverage import FileCode, GpuPlan, RequestedGpu
from relink.planning.model import FilePlan, Plan
from relink.planning.reading import Wheel
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.decide import PlanDraft
from relink.providers.prefix import Provider
from relink.system.findings.model import Finding, finding
from relink.system.text import join_some, join_with_and, pluralize
from relink.vendors.protocol import GpuQuestion


def list_reached_libraries(
    files: Iterable[FilePlan], providers: Sequence[Provider]
) -> tuple[tuple[str, str], ...]:
    """Return (soname, path) of the providers' libraries in the closures of `files`, each path once, in load order."""
    sonames: dict[str, str] = {}
    for soname, path in (pair for file in files if file.served for pair in file.closure):
        sonames.setdefault(posixpath.normpath(path), soname)
    held = (path for path in sonames if any(provider.holds(path) for provider in providers))
    return tuple((sonames[path], path) for path in held)


def list_dlopened_libraries(draft: PlanDraft) -> tuple[tuple[str, str], ...]:
    """Return (soname, path) of the providers' libraries that are dlopened in the closures, as far as their callers are known."""
    context = draft.context
    sonames: dict[str, str] = {}
    for closure in (draft.closures[file.path] for file in draft.files if file.served):
        scope = set(closure.scope)
        for index, loaded in enumerate(closure.objects):
            if index not in scope and context.is_held(loaded.path):
                path = posixpath.normpath(context.layout.real(loaded.path))
                sonames.setdefault(path, loaded.image.soname or loaded.name)
    return tuple((soname, path) for path, soname in sonames.items())


def plan_gpus(
    context: ResolveContext,
    codes: Mapping[str, FileCode],
    files: Sequence[FilePlan],
    gpus: Sequence[RequestedGpu] = (),
    *,
    dlopened: Sequence[tuple[str, str]] = (),
    release: tuple[str, str] = ("", ""),
    made_from: Plan | None = None,
    allow_gap: bool = False,
) -> GpuPlan:
    """Ask the vendor of a wheel on which GPUs its plan runs.

    :param codes: the device code of the wheel's members; those of variants that are not served, or of another vendor's GPUs
        do not count.
    :param dlopened: (soname, path) of libraries that are reached by dlopen.
    :param release: the wheel's distribution and public version; the profile may know others that help.
    :param made_from: the plan by which relink made the wheel; the vendor's has the code that was taken out.
    """
    vendor, providers = context.vendor, context.providers
    served = [file for file in files if file.served]
    left_out = {file.path for file in files if not file.served}
    own = {path: code for path, code in codes.items() if path not in left_out and code.vendor == vendor.name}
    # Files of kernels and archives of code lie beside the libraries of a tree; those of a wheel are members, not files.
    on_disk = {
        member: place for member, place in context.layout.on_disk(context.images).items() if member in own
    }
    libraries = dict.fromkeys((*list_reached_libraries(files, providers), *dlopened, *on_disk.values()))
    needed = [n.soname_after or n.soname for file in served for n in file.needed if n.action != "drop"]
    planned = vendor.gpus.check(
        GpuQuestion(
            codes=own,
            on_disk=on_disk,
            libraries=tuple(libraries),
            sonames=(*needed, *(soname for file in served for soname, _ in file.closure)),
            providers=providers,
            sysroot=context.target.sysroot,
            gpus=[gpu for gpu in gpus if gpu.vendor == vendor.name],
            releases=(
                *_find_vendors_wheel(made_from, gpus),
                *(
                    (f"{row.distribution} {row.version}", row.gpus)
                    for row in context.profile.releases
                    if row.distribution == canonicalize_name(release[0]) and row.version != release[1]
                ),
            ),
            allow_gap=allow_gap,
        )
    )
    others = (
        finding(
            "RLK401", str(gpu.target), f"the wheel is linked to {vendor.product}, which has no code for {gpu}"
        )
        for gpu in gpus
        if gpu.asked and gpu.vendor != vendor.name
    )
    return GpuPlan(planned.block, (*planned.findings, *others))


def _find_vendors_wheel(
    made_from: Plan | None, gpus: Iterable[RequestedGpu]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the vendor's wheel, and of the GPUs those whose code was taken out of it."""
    if made_from is not None and made_from.removed_code:
        entries = [one.entry for one in made_from.removed_code]
        gone = {gpu.target.processor for gpu in gpus}
        gone = {name for name in gone if any(re.search(rf"{name}(?![0-9a-z])", entry) for entry in entries)}
        wheel = made_from.wheel
        yield f"the vendor's {wheel.name} {wheel.version} (SHA-256 {wheel.sha256})", tuple(sorted(gone))


def find_changed_code(member: str, changes: Sequence[str]) -> Iterator[Finding]:
    """The finding for an edited file whose device code is not what it was."""
    if changes:
        yield finding(
            "RLK411",
            member,
            f"its GPU code is not what it was before the edit: {join_some(list(changes))}",
        )


def describe_shrinking(wheel: Wheel, gpus: Sequence[RequestedGpu], subject: str) -> Finding:
    """Return RLK429: how much code for other GPUs than these is taken out, and whether GPUs of the future have any."""
    ranges = [one for removal in wheel.removals.values() for one in removal.ranges if one.entry]
    taken = sum(one.size - len(one.content) for one in ranges)
    parts = [f"{taken / 1e6:.1f} MB in {pluralize(len(wheel.removals), 'file')} are zeros"] if ranges else []
    if wheel.other_kernels:
        parts.append(f"{pluralize(len(wheel.other_kernels), 'kernel file')} left out")
    others = " and ".join(parts) or "no package is required"
    message = f"has code for {join_with_and([*map(str, gpus)])} alone: of others {others}"
    left = any(code.is_jit for code in wheel.remaining.values())
    if left:
        message += "; code that is compiled on first use stays, which GPUs of the future run too (--drop-jit takes it out)"
    elif any(code.is_jit for code in wheel.codes.values()):
        message += "; without the code that is compiled on first use GPUs of the future have none"
    return finding("RLK429", subject, message)


def gpu_label(gpus: Iterable[RequestedGpu]) -> str:
    """Return the part of a local version that says whose code is left: two GPUs at most, else their number."""
    names = [str(gpu.target) for gpu in gpus]
    words = [re.sub(r":(\w+)\+", r".\1on", re.sub(r":(\w+)-", r".\1off", name)) for name in names]
    return ".".join(words).replace("-", ".") if len(words) <= 2 else f"gpus{len(words)}"
