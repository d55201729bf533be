"""Facts in the ELF header of an AMD GPU code object (AMDGPUUsage "ELF Code Object", LLVM's ELF.h)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from relink.elf.constants import EM_AMDGPU
from relink.elf.image import HEADER_SIZE
from relink.gpu.amd.isa_table import table
from relink.gpu.coverage import TargetId

# Unsupported, any, off, on.
_STATES: dict[int, bool | None] = {0: None, 1: None, 2: False, 3: True}


@dataclass(frozen=True, slots=True)
class CodeObject:
    """What the header of one code object says.

    :ivar version: code object version 2 to 6, None for an ABI version that is not known.
    :ivar mach: e_flags & 0xff.
    :ivar target: None when the machine number is not in the table.
    :ivar generic_version: 1 to 255 for generic targets of version 6, else 0.
    """

    abi_version: int
    version: int | None
    mach: int
    target: TargetId | None
    generic_version: int

    @property
    def name(self) -> str:
        """The target id, or the machine number where relink does not know it."""
        return str(self.target) if self.target else f"unknown machine 0x{self.mach:02x}"


def parse_code_object(header: bytes | memoryview) -> CodeObject | None:
    """Read the first 64 bytes of a code object; None when they are no ELF of an AMD GPU."""
    data = bytes(header[:HEADER_SIZE])
    if len(data) < HEADER_SIZE or data[:6] != b"\x7fELF\x02\x01":
        return None
    machine, flags = struct.unpack_from("<H", data, 18)[0], struct.unpack_from("<I", data, 48)[0]
    if machine != EM_AMDGPU:
        return None
    abi = data[8]
    mach = flags & 0xFF
    processor = table().machines.get(mach)
    target = None
    if processor is not None:
        features: list[tuple[str, bool]] = []
        # v4 on: two bits a feature.
        if abi >= 2:
            states = (("sramecc", _STATES[flags >> 10 & 3]), ("xnack", _STATES[flags >> 8 & 3]))
            features = [(name, on) for name, on in states if on is not None]
        elif abi == 1:  # v3: one bit a feature, on or not
            features = [(name, True) for name, bit in (("sramecc", 0x200), ("xnack", 0x100)) if flags & bit]
        if not table().features(processor):
            # No feature is to be chosen: ROCr drops the bits (gfx12.5, whose replay is always on).
            features = []
        target = TargetId(processor, tuple(features))
    return CodeObject(
        abi_version=abi,
        version=abi + 2 if abi <= 4 else None,
        mach=mach,
        target=target,
        generic_version=flags >> 24 if abi >= 4 else 0,
    )
