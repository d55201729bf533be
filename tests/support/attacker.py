"""A program that tries what a sandbox is to refuse, and what came of each try, by kind of sandbox.

Nothing is imported that a Python without packages does not have: :func:`main` also runs as another user, under another Python.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from relink.system.sandbox.start import Limits, Sandbox

__all__ = ["ATTACKS", "NETWORK", "SOURCE", "main", "outcomes"]

ATTACKS = {
    "read": "read a file",
    "write": "write a file",
    "write-given": "write the file that patchelf is given",
    "write-other": "write another file, as patchelf",
    "create-other": "make a file, as patchelf",
    "truncate": "truncate a file by its name",
    "remove": "remove a file",
    "rename": "rename a file",
    "link": "make a symbolic link",
    "chmod": "change a file's mode",
    "proc": "write /proc/PID/oom_score_adj of another process",
    "exec": "execute another program",
    "exec-self": "execute itself again",
    "tcp": "connect by TCP",
    "udp": "send by UDP",
    "unix": "connect to a UNIX socket in the file system",
    "abstract": "connect to an abstract UNIX socket",
    "fork": "start processes without end",
    "thread": "start a thread",
    "kill": "send a signal to another process",
    "owner": "have the kernel send signals (F_SETOWN)",
    "ptrace": "trace another process",
    "memory": "fill memory",
    "shared": "fill memory that is shared",
    "raise": "raise a limit",
    "core": "leave a core dump",
    "privilege": "have or gain a privilege (set-user-id)",
    "namespace": "make namespaces",
    "io_uring": "use io_uring",
    "descriptors": "find an open file of relink's",
    "environment": "find relink's environment",
}
"""What is tried, and what the documentation calls it."""

NETWORK = ("tcp", "udp")
"""Those that need sockets on the loopback device to attack."""

SOURCE = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

extern char **environ;

static int opened(const char *path, int flags) {
    int fd = open(path, flags, 0644);
    if (fd < 0) return -1;
    if ((flags & 3) && write(fd, "0", 1) != 1) return -1;
    return 0;
}

static int unix_socket(const char *name, int abstract) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) return -1;
    strncpy(to.sun_path + abstract, name, sizeof to.sun_path - 2);
    return connect(fd, (void *)&to, offsetof(struct sockaddr_un, sun_path) + abstract + strlen(name));
}

static int inet(int type, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, type, 0);
    if (fd < 0) return -1;
    if (type == SOCK_DGRAM) return sendto(fd, "x", 1, 0, (void *)&to, sizeof to) == 1 ? 0 : -1;
    return connect(fd, (void *)&to, sizeof to);
}

static int bomb(void) {
    int made = 0;
    while (made < 40) {
        pid_t child = fork();
        if (child < 0) break;
        if (child == 0) _exit(0);
        made++;
    }
    return made == 40 ? 0 : -1;
}

/* Not _exit: in glibc it is exit_group, which ends the process before the outcome is printed. */
static int nothing(void *unused) { return syscall(SYS_exit, 0); }

static int thread(void) {
    static char stack[65536] __attribute__((aligned(16)));
    return clone(nothing, stack + sizeof stack, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD, 0) < 0 ? -1 : 0;
}

static int filled(int flags) {
    for (int count = 0; count < 48; count++) {
        char *memory = mmap(0, 8 << 20, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return -1;
        for (int page = 0; page < 8 << 20; page += 4096) memory[page] = 1;
    }
    return 0;
}

static int privileged(void) {
    char line[256];
    unsigned long long capabilities = 1;
    int promised = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        sscanf(line, "CapEff: %llx", &capabilities);
        sscanf(line, "NoNewPrivs: %d", &promised);
    }
    return capabilities || !promised ? 0 : -1;
}

static int limits_raised(void) {
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096}, before;
    getrlimit(RLIMIT_NOFILE, &before);
    if (before.rlim_max >= 4096 && geteuid()) return 0;
    if (!geteuid()) limit.rlim_cur = limit.rlim_max = before.rlim_max + 1;
    return setrlimit(RLIMIT_NOFILE, &limit);
}

static int descriptors(void) {
    for (int fd = 3; fd < 64; fd++)
        if (lseek(fd, 0, SEEK_CUR) >= 0 || errno != EBADF) return 0;
    return -1;
}

int main(int count, char **arguments) {
    const char *what = arguments[1], *name = arguments[2];
    int number = count > 3 ? atoi(arguments[3]) : 0, result = -1;
    char *const again[] = {"/proc/self/exe", "nothing", "", 0};
    struct rlimit core;
    errno = 0;
#define TRY(word, call) if (!strcmp(what, word)) result = (call)
    if (!strcmp(what, "nothing")) return 0;
    if (!strcmp(what, "loop")) for (;;) ;
    if (!strcmp(what, "crash")) *(volatile int *)0 = 0;
    if (!strcmp(what, "abort")) abort();
    if (!strcmp(what, "grow")) {
        int fd = open(name, O_WRONLY);
        static char block[1 << 20];
        for (int each = 0; each < number; each++) if (write(fd, block, sizeof block) != sizeof block) return 3;
        return 0;
    }
    TRY("read", opened(name, O_RDONLY));
    TRY("write", opened(name, O_WRONLY));
    TRY("write-given", opened(name, O_WRONLY | O_CREAT | O_TRUNC));
    TRY("write-other", opened(name, O_WRONLY));
    TRY("create-other", opened(name, O_WRONLY | O_CREAT));
    TRY("truncate", truncate(name, 0));
    TRY("remove", unlink(name));
    TRY("rename", rename(name, arguments[4]));
    TRY("link", symlink("x", name));
    TRY("chmod", chmod(name, 0777));
    TRY("proc", opened(name, O_WRONLY));
    TRY("exec", execl("/bin/true", "true", (char *)0));
    TRY("exec-self", execve("/proc/self/exe", again, environ));
    TRY("tcp", inet(SOCK_STREAM, number));
    TRY("udp", inet(SOCK_DGRAM, number));
    TRY("unix", unix_socket(name, 0));
    TRY("abstract", unix_socket(name, 1));
    TRY("fork", bomb());
    TRY("thread", thread());
    TRY("kill", kill(number, SIGCONT));
    TRY("owner", fcntl(0, F_SETOWN, number));
    TRY("ptrace", (int)ptrace(PTRACE_SEIZE, number, 0, 0));
    TRY("memory", filled(MAP_PRIVATE));
    TRY("shared", filled(MAP_SHARED));
    TRY("raise", limits_raised());
    TRY("core", getrlimit(RLIMIT_CORE, &core) || core.rlim_cur < 4096 ? -1 : 0);
    TRY("privilege", privileged());
    TRY("namespace", unshare(CLONE_NEWUSER));
    TRY("io_uring", syscall(425, 1, number) < 0 && errno != EFAULT ? -1 : 0);
    TRY("descriptors", descriptors());
    TRY("environment", environ[0] ? 0 : -1);
    puts(result < 0 ? "refused" : "open");
    return 0;
}
"""
_LIMITS = Limits(seconds=5, data=64 << 20, addresses=256 << 20, file=1 << 20)
_AS_PATCHELF = ("write-given", "write-other", "create-other")


def outcomes(program: Path, place: Path, sandbox: Sandbox, *, network: bool = False) -> dict[str, str]:
    """Try everything; return ``refused`` or ``open`` by attack.

    :param program: :data:`SOURCE`, compiled.
    :param place: an empty directory, for what is attacked.
    :param network: try those of :data:`NETWORK` and no others, or else all others.
    """
    found = {}
    with (
        socket.socket() as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as abstract,
        subprocess.Popen(["sleep", "600"]) as victim,
    ):
        try:
            if network:
                tcp.bind(("127.0.0.1", 0))
                tcp.listen()
                udp.bind(("127.0.0.1", 0))
            unix.bind(str(place / "socket"))
            hidden = f"relink-test-{os.getpid()}"
            abstract.bind(f"\0{hidden}")
            for one in (unix, abstract):
                one.listen()
            ports = {"tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1]} if network else {}
            new = str(place / "new")
            names = {
                "write-given": str(place / "given"),
                "create-other": new,
                "link": new,
                "unix": str(place / "socket"),
                "abstract": hidden,
                "proc": f"/proc/{victim.pid}/oom_score_adj",
            }
            for attack in (name for name in ATTACKS if (name in NETWORK) == network):
                given, other = place / "given", place / "other"
                for path in (given, other):
                    path.write_text("0")
                    path.chmod(0o644)
                for path in (place / "new", place / "renamed"):
                    path.unlink(missing_ok=True)
                number = ports.get(attack, victim.pid)
                arguments = [names.get(attack, str(other)), str(number), str(place / "renamed")]
                command = [str(program), attack, *arguments]
                writable = str(given) if attack in _AS_PATCHELF else None
                process = sandbox.start(command, {}, _LIMITS, writable=writable)
                output, errors = process.communicate(timeout=60)
                ran = attack in ("exec", "exec-self") and not output and process.returncode == 0
                found[attack] = "open" if ran else output.strip() or f"{process.returncode} {errors.strip()}"
        finally:
            victim.kill()
    return found


def main() -> None:
    """PROGRAM PLACE KIND [network]: print the outcomes as JSON."""
    program, place, kind, *network = sys.argv[1:]
    found = outcomes(Path(program), Path(place), Sandbox(kind), network=bool(network))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
