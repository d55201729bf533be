"""The system call filter of the sandbox: which calls a dynamic loader and patchelf need, as a seccomp program.

It lists what is allowed. Anything else fails with ENOSYS: a C library then tries an older call or fails. Numbers are those of
arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h (aarch64); the instructions are classic BPF on
``struct seccomp_data`` (Documentation/userspace-api/seccomp_filter.rst).
"""

from __future__ import annotations

from dataclasses import dataclass

Instruction = tuple[int, int, int, int]
"""``struct sock_filter``: code, jump if true, jump if false, value."""

PID = -1
"""A placeholder for the process's own id, which only the child knows (:mod:`relink.system.sandbox.inside`)."""

# BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_JMP|JSET|K, BPF_RET|K.
_LOAD, _JUMP_EQUAL, _JUMP_SET, _RETURN = (
    0x20,
    0x15,
    0x45,
    0x06,
)
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000  # SECCOMP_RET_*
# Offsets in struct seccomp_data.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_EPERM, _EACCES, _ENOSYS = 1, 13, 38

# O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_APPEND and O_TMPFILE (asm-generic/fcntl.h; the same on both architectures).
_WRITING = 0x400643
# MAP_SHARED, and MAP_GROWSDOWN: memory of these kinds does not count for RLIMIT_DATA (mm/mmap.c, is_data_mapping).
_UNCOUNTED = 0x101


@dataclass(frozen=True, slots=True)
class _Machine:
    """:ivar audit: AUDIT_ARCH_* (include/uapi/linux/audit.h); `column`: where its numbers stand in `_CALLS`."""

    audit: int
    column: int


_MACHINES = {"x86_64": _Machine(0xC000003E, 0), "aarch64": _Machine(0xC00000B7, 1)}

# Name: the number on x86_64 and on aarch64; None where the architecture does not have it.
_CALLS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "lseek": (8, 62),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "readv": (19, 65),
    "writev": (20, 66),
    "access": (21, None),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "getpid": (39, 172),
    "exit": (60, 93),
    "uname": (63, 160),
    "getcwd": (79, 17),
    "readlink": (89, None),
    "gettimeofday": (96, 169),
    "getrlimit": (97, 163),
    "sysinfo": (99, 179),
    "getuid": (102, 174),
    "getgid": (104, 176),
    "geteuid": (107, 175),
    "getegid": (108, 177),
    "sigaltstack": (131, 132),
    "arch_prctl": (158, None),
    "gettid": (186, 178),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "getdents64": (217, 61),
    "set_tid_address": (218, 96),
    "clock_gettime": (228, 113),
    "exit_group": (231, 94),
    "newfstatat": (262, 79),
    "readlinkat": (267, 78),
    "faccessat": (269, 48),
    "set_robust_list": (273, 99),
    "getrandom": (318, 278),
    "statx": (332, 291),
    "rseq": (334, 293),
    "faccessat2": (439, 439),
    "mseal": (462, 462),
}
_OPEN, _OPENAT, _MMAP = (2, None), (257, 56), (9, 222)
_EXECVE, _TGKILL, _PRLIMIT, _FCNTL = (59, 221), (234, 131), (302, 261), (72, 25)
# F_GETFD, F_SETFD, F_GETFL: F_SETOWN would send signals.
_FCNTL_READING = (1, 2, 3)


def filter_for(machine: str, key: int, *, writes: bool) -> tuple[Instruction, ...] | None:
    """Return the filter for one program, or None where the machine's numbers are not known.

    :param machine: as ``os.uname().machine`` has it.
    :param key: 64 bits: execve is allowed where its fourth argument, which execve itself does not use, is this number. The child
        that starts the program knows it. The program begins with cleared registers and does not, so it can execute nothing.
    :param writes: whether files may be opened for writing; a filter cannot see which ones.
    """
    known = _MACHINES.get(machine)
    if known is None:
        return None

    def call(numbers: tuple[int | None, int | None], *body: Instruction) -> list[Instruction]:
        number = numbers[known.column]
        return [] if number is None else [(_JUMP_EQUAL, 0, len(body), number), *body]

    flags = () if writes else (_WRITING,)
    return (
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, known.audit),
        _return(_KILL),
        (_LOAD, 0, 0, _NUMBER),
        *(step for numbers in _CALLS.values() for step in call(numbers, _return(_ALLOW))),
        *call(_OPEN, *_unless_set(1, *flags, error=_EACCES)),
        *call(_OPENAT, *_unless_set(2, *flags, error=_EACCES)),
        *call(_MMAP, *_unless_set(3, _UNCOUNTED, error=_EPERM)),
        *call(_EXECVE, *_if_equal(3, key)),
        # The new limit is NULL: limits can be read, not set.
        *call(_PRLIMIT, *_if_equal(2, 0)),
        *call(_TGKILL, _argument(0), (_JUMP_EQUAL, 0, 1, PID), _return(_ALLOW), _denied(_EPERM)),
        *call(_FCNTL, *_if_one_of(1, _FCNTL_READING)),
        _denied(_ENOSYS),
    )


def _return(action: int) -> Instruction:
    return (_RETURN, 0, 0, action)


def _denied(error: int) -> Instruction:
    return _return(_ERRNO | error)


def _argument(number: int, *, high: bool = False) -> Instruction:
    """Load one half of an argument: BPF has 32-bit words. Both architectures are little-endian, so the low half comes first."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * number + 4 * high)


def _unless_set(argument: int, *masks: int, error: int) -> list[Instruction]:
    """Allow the call unless one of the bits is set."""
    tests = [
        step for mask in masks for step in (_argument(argument), (_JUMP_SET, 0, 1, mask), _denied(error))
    ]
    return [*tests, _return(_ALLOW)]


def _if_equal(argument: int, value: int) -> list[Instruction]:
    """Allow the call if all 64 bits of an argument are these."""
    return [
        _argument(argument),
        (_JUMP_EQUAL, 0, 3, value & 0xFFFFFFFF),
        _argument(argument, high=True),
        (_JUMP_EQUAL, 0, 1, value >> 32),
        _return(_ALLOW),
        _denied(_EPERM),
    ]


def _if_one_of(argument: int, values: tuple[int, ...]) -> list[Instruction]:
    tests = [step for value in values for step in ((_JUMP_EQUAL, 0, 1, value), _return(_ALLOW))]
    return [_argument(argument), *tests, _denied(_EPERM)]
