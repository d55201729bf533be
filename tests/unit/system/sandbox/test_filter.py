"""The filter as the kernel runs it, for both architectures: an interpreter of its few instructions (seccomp(2))."""

from __future__ import annotations

import struct

import pytest

from relink.system.sandbox.filter import PID, filter_for

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
KEY = 0x0123456789ABCDEF
OWN = 4321
ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, EACCES, ENOSYS = 0x50001, 0x5000D, 0x50026

# Name: (number on x86_64, on aarch64), arguments, what comes of it for a loader, and for patchelf if that differs.
CALLS: list[tuple[str, tuple[int, int], tuple[int, ...], int, int | None]] = [
    ("read", (0, 63), (3, 0, 8), ALLOW, None),
    ("openat to read", (257, 56), (0, 0, 0x80000), ALLOW, None),
    ("openat to write", (257, 56), (0, 0, 1), EACCES, ALLOW),
    ("openat to read and write", (257, 56), (0, 0, 2), EACCES, ALLOW),
    ("openat to create", (257, 56), (0, 0, 0x40), EACCES, ALLOW),
    ("openat to truncate", (257, 56), (0, 0, 0x200), EACCES, ALLOW),
    ("openat O_TMPFILE", (257, 56), (0, 0, 0x400000), EACCES, ALLOW),
    ("openat2", (437, 437), (0, 0, 0), ENOSYS, None),
    ("mmap private", (9, 222), (0, 1, 5, 2, 3, 0), ALLOW, None),
    ("mmap shared", (9, 222), (0, 1, 3, 1, 3, 0), EPERM, None),
    ("mmap shared, validated", (9, 222), (0, 1, 3, 3, 3, 0), EPERM, None),
    ("mmap of a stack", (9, 222), (0, 1, 3, 0x122, 3, 0), EPERM, None),
    ("execve with the key", (59, 221), (0, 0, 0, KEY), ALLOW, None),
    ("execve", (59, 221), (0, 0, 0, 0), EPERM, None),
    ("execve with half of the key", (59, 221), (0, 0, 0, KEY & 0xFFFFFFFF), EPERM, None),
    ("execve with the other half", (59, 221), (0, 0, 0, KEY >> 32 << 32), EPERM, None),
    ("execveat", (322, 281), (0, 0, 0, KEY), ENOSYS, None),
    ("a limit read", (302, 261), (0, 3, 0, 99), ALLOW, None),
    ("a limit set", (302, 261), (0, 3, 99, 0), EPERM, None),
    ("a limit set from far away", (302, 261), (0, 3, 1 << 40, 0), EPERM, None),
    ("a signal to itself", (234, 131), (OWN, OWN, 6), ALLOW, None),
    ("a signal to another", (234, 131), (OWN + 1, OWN + 1, 6), EPERM, None),
    ("kill", (62, 129), (OWN, 9), ENOSYS, None),
    ("F_GETFL", (72, 25), (1, 3), ALLOW, None),
    ("F_SETOWN", (72, 25), (1, 8, OWN), EPERM, None),
    ("F_DUPFD", (72, 25), (1, 0), EPERM, None),
    ("clone", (56, 220), (0,), ENOSYS, None),
    ("clone3", (435, 435), (0,), ENOSYS, None),
    ("socket", (41, 198), (1, 1, 0), ENOSYS, None),
    ("ptrace", (101, 117), (0,), ENOSYS, None),
    ("io_uring_setup", (425, 425), (0,), ENOSYS, None),
    ("unshare", (272, 97), (0,), ENOSYS, None),
    ("a number of the x32 ABI", (0x40000000, 0x40000000), (), ENOSYS, None),
    ("a number that is not there", (999, 999), (), ENOSYS, None),
]


def run(machine: str, number: int, arguments: tuple[int, ...], *, writes: bool, audit: int) -> int:
    program = filter_for(machine, KEY, writes=writes)
    assert program is not None
    data = struct.pack("<IIQ6Q", number, audit, 0, *(*arguments, *[0] * 6)[:6])
    accumulator, at = 0, 0
    while True:
        code, yes, no, value = program[at]
        at += 1
        if value == PID:
            value = OWN
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x15:
            at += yes if accumulator == value else no
        elif code == 0x45:
            at += yes if accumulator & value else no
        else:
            assert code == 0x06
            return value


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", CALLS, ids=lambda case: str(case[0]))
def test_calls(machine: str, case: tuple[str, tuple[int, int], tuple[int, ...], int, int | None]) -> None:
    _, numbers, arguments, loader, patchelf = case
    number = numbers[[*MACHINES].index(machine)]
    audit = MACHINES[machine]
    assert run(machine, number, arguments, writes=False, audit=audit) == loader
    assert run(machine, number, arguments, writes=True, audit=audit) == (
        loader if patchelf is None else patchelf
    )


@pytest.mark.parametrize("machine", MACHINES)
def test_another_abi_is_killed(machine: str) -> None:
    """32-bit calls have other numbers: 0x40000003 is AUDIT_ARCH_I386."""
    assert run(machine, 0, (), writes=False, audit=0x40000003) == KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_the_kernel_takes_it(machine: str) -> None:
    """At most 4096 instructions, each jump inside (BPF_MAXINSNS, a byte wide), the last one a return."""
    program = filter_for(machine, KEY, writes=False)
    assert program is not None
    assert len(program) < 4096
    assert program[-1][0] == 0x06
    for at, (code, yes, no, _) in enumerate(program):
        if code in (0x15, 0x45):
            assert at + 1 + max(yes, no) < len(program)
            assert max(yes, no) < 256


def test_a_machine_that_is_not_known_has_none() -> None:
    assert filter_for("riscv64", KEY, writes=False) is None
