"""The GPUs that a user asks about: ``gfx1031``, ``RX 6750 XT``, or ``auto`` for those of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from relink.gpu.amd.device import Gpu, find_gpus
from relink.gpu.amd.isa_table import table
from relink.gpu.amd.target_id import processor_for
from relink.gpu.coverage import TargetId
from relink.system.errors import UsageError


@dataclass(frozen=True, slots=True)
class Wanted:
    """A GPU that was asked for.

    :ivar name: what the user called it, where that is not the target id.
    :ivar local: it is in this machine; `physical` is its processor where an override makes it pass for another.
    :ivar asked: the user asks for it; else it was seen in this machine, and what it lacks is no error.
    """

    target: TargetId
    name: str = ""
    products: tuple[str, ...] = ()
    local: bool = False
    physical: str = ""
    asked: bool = True

    def __str__(self) -> str:
        if self.physical:
            return f"{self.target} ({self.physical} by HSA_OVERRIDE_GFX_VERSION)"
        called = self.name or ", ".join(self.products)
        return f"{self.target} ({called})" if called else str(self.target)


def wanted_gpus(
    texts: Iterable[str], root: str = "/", environment: Mapping[str, str] | None = None
) -> tuple[Wanted, ...]:
    """Return the GPUs that ``--gpu`` names: ``gfx1031``, ``RX 6750 XT``, or ``auto`` for those of this machine.

    Each architecture comes once. HSA_OVERRIDE_GFX_VERSION of `environment` (this process's) is in force for ``auto``.

    :raises UsageError: a name means nothing, or ``auto`` finds no GPU.
    """
    found: dict[TargetId, Wanted] = {}
    for text in texts:
        if text.strip().lower() == "auto":
            devices = find_gpus(root, os.environ if environment is None else environment)
            if not devices.gpus:
                reason = "; ".join(devices.problems) or "KFD lists no GPU"
                raise UsageError(f"--gpu auto finds none: {reason} (for example --gpu gfx1031)")
            for gpu in devices.gpus:
                found.setdefault(gpu.target, _local(gpu))
        else:
            try:
                target = processor_for(text)
            except UsageError as error:
                raise UsageError(
                    f"--gpu {text}: no target id (gfx1031), no product that relink knows (RX 6750 XT), and not auto"
                ) from error
            known = table().processors.get(target.processor)
            name = "" if text.strip().lower() == str(target) else text.strip()
            found.setdefault(target, Wanted(target, name, known.products if known else ()))
    return tuple(found.values())


def seen_gpus(root: str = "/", environment: Mapping[str, str] | None = None) -> tuple[Wanted, ...]:
    """Return the GPUs of this machine, each architecture once, as nobody has asked for them; none where none can be seen."""
    found: dict[TargetId, Wanted] = {}
    for gpu in find_gpus(root, os.environ if environment is None else environment).gpus:
        found.setdefault(gpu.target, replace(_local(gpu), asked=False))
    return tuple(found.values())


def _local(gpu: Gpu) -> Wanted:
    known = table().processors.get(gpu.physical.processor)
    physical = gpu.physical.processor if gpu.overridden else ""
    return Wanted(gpu.target, "", known.products if known else (), local=True, physical=physical)
