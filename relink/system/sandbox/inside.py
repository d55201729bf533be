"""The child process: it gives up what the program must not have, and then executes the program.

It is started by :mod:`relink.system.sandbox` as a Python without site packages, so it imports the standard library only, and
little of that: the imports are part of the time of a start. Starting Python takes ten times as long as all the rest, so one
process (:func:`serve`) makes the others, but for bubblewrap. Numbers are those of x86_64 and aarch64, which are the same here.
"""

from __future__ import annotations

import _socket
import ctypes
import errno
import marshal
import os
import struct

# Importing typing takes a quarter of the whole start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


FAILED = 125
"""The exit status where the sandbox could not be set up, or the program not be started; standard error says why."""
REFUSED = "sandbox: "
"""The prefix of the line on standard error that says why."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
_libc.mount.argtypes = [*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_void_p]
_libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
_libc.syscall.restype = ctypes.c_long

_MOUNT_SETATTR, _LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 442, 444, 445, 446
_EXECVE = {"x86_64": 59, "aarch64": 221}
_CLONE, _CLONE_PARENT, _SIGCHLD = {"x86_64": 56, "aarch64": 220}, 0x8000, 17
_AT_FDCWD = -100
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_PR_SET_SECCOMP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 22, 47, 4
_MODE_FILTER = 2
_SIGKILL, _SIGPIPE, _SIGXFSZ = 9, 13, 25
# CLONE_NEW*: mount, cgroup, UTS, IPC, user and network namespace (include/uapi/linux/sched.h).
_NEW_USER = 0x10000000
_NEW_OTHERS = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_AT_RECURSIVE = 0x8000
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
# Rights on files (include/uapi/linux/landlock.h): those that change something, by the Landlock ABI version that added them.
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_CHANGING = {1: _WRITE_FILE | sum(1 << bit for bit in range(4, 13)), 2: 1 << 13, 3: _TRUNCATE, 5: 1 << 15}
_NET_BIND_CONNECT, _SCOPE_SOCKET_SIGNAL = 3, 3


def main(descriptor: int) -> NoReturn:
    """Carry out a request of :mod:`relink.system.sandbox`, which is read from a descriptor; does not return."""
    try:
        with open(descriptor, "rb") as file:  # which the program must not have
            request = marshal.loads(file.read())  # noqa: S302 (relink wrote it)
        _enter(request)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        os.write(2, f"{REFUSED}{what}\n".encode(errors="surrogateescape"))
    except RuntimeError as error:
        os.write(2, f"{REFUSED}{error}\n".encode())
    os._exit(FAILED)


def serve(descriptor: int) -> NoReturn:
    """Carry out each request that comes over a socket in a new process, a child of relink itself (clone(2), CLONE_PARENT).

    A message has descriptors: of the request, output, errors. The answer is the id. A helper that can make none is the process.
    """
    os.set_inheritable(descriptor, False)
    socket, number = _socket.socket(fileno=descriptor), _CLONE.get(os.uname().machine, -1)
    while control := socket.recvmsg(1, _socket.CMSG_SPACE(12), _socket.MSG_CMSG_CLOEXEC)[1]:
        asked, output, errors = struct.unpack("=3i", control[0][2])
        made = _syscall(number, _CLONE_PARENT | _SIGCHLD, 0, 0, 0, 0)
        if made <= 0:
            if made == 0:
                os.setsid()
            os.dup2(output, 1)
            os.dup2(errors, 2)
            socket.send(struct.pack("=i", os.getpid()))
            main(asked)
        for stream in (asked, output, errors):
            os.close(stream)
    os._exit(0)


def _enter(request: dict[str, Any]) -> None:
    command: list[bytes] = request["command"]
    environment: list[bytes] = request["environment"]
    program, arguments, variables = command[0], _strings(command), _strings(environment)
    kind, writable, root = request["kind"], request["writable"], request["root"]
    writable_fd = os.open(writable, os.O_PATH | os.O_CLOEXEC) if writable else None
    if kind == "namespaces":
        _unshare(_NEW_USER | _NEW_OTHERS)
        _read_only(writable)
    if root:
        result = _libc.chroot(root)
        # A user needs a namespace for it.
        if result < 0 and ctypes.get_errno() == errno.EPERM:
            _unshare(_NEW_USER)
            result = _libc.chroot(root)
        _call("chroot", result, root)
    os.chdir("/")
    if kind != "off":
        for number, value in request["limits"]:
            before = (ctypes.c_ulong * 2)()
            _call("getrlimit", _libc.getrlimit(number, before))
            # RLIM_INFINITY is the largest number.
            least = min(value, before[1])
            _call("setrlimit", _libc.setrlimit(number, (ctypes.c_ulong * 2)(least, least)))
        _drop_capabilities()
        _call("no_new_privs", _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if kind in ("bubblewrap", "namespaces", "landlock"):
        version = _syscall(_LANDLOCK_CREATE, None, 0, 1)
        if version > 0:
            _landlock(version, writable_fd)
        elif kind == "landlock":
            raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    if writable_fd is not None:
        os.close(writable_fd)
    # Python ignores these, and ignored signals stay so over execve.
    for number in (_SIGPIPE, _SIGXFSZ):
        _libc.signal(number, None)
    if request["parent"] is not None:
        _call("PR_SET_PDEATHSIG", _libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0))
        # The parent ended before prctl.
        if os.getppid() != request["parent"]:
            os._exit(FAILED)
    if request["filter"]:
        _filter(request["filter"])
    if request["probe"]:
        _self_test(request["probe"], writable)
    if request["filter"]:
        _libc.syscall(
            _EXECVE[os.uname().machine], program, arguments, variables, ctypes.c_uint64(request["key"])
        )
    else:
        _libc.execve(program, arguments, variables)
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), os.fsdecode(program))


def _strings(items: list[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(items) + 1))(*items, None)


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    longs = (ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments)
    return int(_libc.syscall(number, *longs))


def _call(name: str, result: int, path: bytes | None = None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        where = f" {os.fsdecode(path)}" if path else ""
        raise OSError(number, f"{name}{where}: {os.strerror(number)}")
    return result


def _unshare(flags: int) -> None:
    """Enter new namespaces; user and group keep their ids in them."""
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", _libc.unshare(flags))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _read_only(writable: bytes | None) -> None:
    """Make every mount read-only; one file stays writable by a bind mount of its own."""
    _call("mount", _libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))
    if writable:
        _call("mount", _libc.mount(writable, writable, None, _MS_BIND, None), writable)
    _mount_attributes(b"/", _ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV, 0, _AT_RECURSIVE)
    if writable:
        _mount_attributes(writable, 0, _ATTR_RDONLY, 0)


def _mount_attributes(path: bytes, wanted: int, unwanted: int, flags: int) -> None:
    """mount_setattr(2), Linux 5.12."""
    attributes = struct.pack("=4Q", wanted, unwanted, 0, 0)
    _call(
        "mount_setattr", _syscall(_MOUNT_SETATTR, _AT_FDCWD, path, flags, attributes, len(attributes)), path
    )


def _drop_capabilities() -> None:
    """Drop the capabilities of all sets, so that execve gives none back; the user stays the same."""
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    # Refused without CAP_SETPCAP; then no_new_privs alone keeps execve from giving capabilities.
    capability = 0
    while capability < 64 and _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    # _LINUX_CAPABILITY_VERSION_3, this process.
    header = struct.pack("=Ii", 0x20080522, 0)
    _call("capset", _libc.capset(header, bytes(24)))


def _landlock(version: int, writable: int | None) -> None:
    """Forbid changes of files but one, and TCP, abstract sockets and signals where this Landlock version can."""
    rights = sum(bits for since, bits in _CHANGING.items() if since <= version)
    attributes = struct.pack("=Q", rights)
    if version >= 4:
        attributes += struct.pack("=Q", _NET_BIND_CONNECT)
    if version >= 6:
        attributes += struct.pack("=Q", _SCOPE_SOCKET_SIGNAL)
    rules = _call("landlock_create_ruleset", _syscall(_LANDLOCK_CREATE, attributes, len(attributes), 0))
    if writable is not None:
        beneath = struct.pack("=Qi", rights & (_WRITE_FILE | _TRUNCATE), writable)
        _call("landlock_add_rule", _syscall(_LANDLOCK_ADD, rules, 1, beneath, 0))
    _call("landlock_restrict_self", _syscall(_LANDLOCK_RESTRICT, rules, 0))
    os.close(rules)


def _filter(program: list[tuple[int, int, int, int]]) -> None:
    """Install the filter; a value of -1 is replaced by this process's id (:data:`relink.system.sandbox.start.PID`)."""
    pid = os.getpid()
    code = b"".join(
        struct.pack("=HBBI", opcode, yes, no, pid if value < 0 else value)
        for opcode, yes, no, value in program
    )
    buffer = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(
        struct.pack("@HP", len(program), ctypes.addressof(buffer))
    )  # sock_fprog
    _call("seccomp", _libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(header), 0, 0))


def _self_test(outside: bytes, writable: bytes | None) -> None:
    """Check the restrictions: `outside` cannot be written, `writable` can, and no process can be created.

    :raises RuntimeError: one of them is not in force.
    """
    if writable:
        os.close(os.open(writable, os.O_WRONLY | os.O_TRUNC))
    # contextlib.suppress would be shorter, but its import takes long.
    try:
        os.close(os.open(outside, os.O_WRONLY))
    except OSError:
        pass
    else:
        raise RuntimeError("a file outside can be written")
    try:
        child = os.fork()
    except OSError:
        return
    if child == 0:
        os._exit(0)
    raise RuntimeError("a process can be made")
