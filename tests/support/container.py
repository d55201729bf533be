"""A container that allows no namespaces: a system call filter that refuses them, as Docker's default one does, then a program.

Run as ``python container.py WORDS -- COMMAND``. Words: ``namespaces`` refuses unshare, setns, mount and clone with CLONE_NEWUSER;
``landlock`` and ``seccomp`` refuse those as well, ``siblings`` clone with CLONE_PARENT. It stands for kernels without them, too.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

_CALLS = {
    "x86_64": {
        "clone": 56,
        "clone3": 435,
        "unshare": 272,
        "setns": 308,
        "mount": 165,
        "prctl": 157,
        "seccomp": 317,
    },
    "aarch64": {
        "clone": 220,
        "clone3": 435,
        "unshare": 97,
        "setns": 268,
        "mount": 40,
        "prctl": 167,
        "seccomp": 277,
    },
}
_LOAD, _EQUAL, _SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_EPERM, _ENOSYS = 0x50001, 0x50026
_CLONE_NEWUSER, _CLONE_PARENT, _PR_SET_SECCOMP = 0x10000000, 0x8000, 22


def program(words: list[str]) -> bytes:
    calls = _CALLS[os.uname().machine]
    code = [(_LOAD, 0, 0, 0)]

    def refuse(number: int, action: int = _EPERM) -> None:
        code.extend([(_EQUAL, 0, 1, number), (_RETURN, 0, 0, action)])

    def refuse_if(number: int, test: tuple[int, int]) -> None:
        kind, value = test
        argument = 16
        body = [
            (_LOAD, 0, 0, argument),
            (kind, 0, 1, value),
            (_RETURN, 0, 0, _EPERM),
            (_RETURN, 0, 0, 0x7FFF0000),
        ]
        code.extend([(_EQUAL, 0, len(body), number), *body])

    if "namespaces" in words:
        for name in ("unshare", "setns", "mount"):
            refuse(calls[name])
        refuse(442)  # mount_setattr
        refuse(calls["clone3"], _ENOSYS)
        refuse_if(calls["clone"], (_SET, _CLONE_NEWUSER))
    if "siblings" in words:
        refuse_if(calls["clone"], (_SET, _CLONE_PARENT))
    if "landlock" in words:
        for number in (444, 445, 446):
            refuse(number, _ENOSYS)
    if "seccomp" in words:
        refuse(calls["seccomp"])
        refuse_if(calls["prctl"], (_EQUAL, _PR_SET_SECCOMP))
    code.append((_RETURN, 0, 0, 0x7FFF0000))
    return b"".join(struct.pack("=HBBI", *one) for one in code)


def main() -> None:
    end = sys.argv.index("--")
    code = program(sys.argv[1:end])
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer)))
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(_PR_SET_SECCOMP, 2, ctypes.addressof(header), 0, 0):
        sys.exit(f"container: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[end + 1], sys.argv[end + 1 :])  # noqa: S606  (a filter lasts over execve)


if __name__ == "__main__":
    main()
