"""What each kind of sandbox refuses, tried from inside by a program in the place of the loader or of patchelf."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from relink.loader.dryrun import dry_run
from relink.loader.target import find_target
from relink.system.sandbox.start import KINDS, OFF, Limits, Sandbox, status_of, stop, why_not
from tests.support.attacker import ATTACKS, NETWORK, SOURCE, outcomes
from tests.support.cc import cc, shared

ROOT = Path(__file__).parents[4]
ENFORCED = KINDS[:3]
ALLOWED = {"read", "write-given"}
GAPS = {
    **dict.fromkeys(ENFORCED, ALLOWED),
    "filter": ALLOWED | {"write-other", "create-other"},
    # As root RLIMIT_NPROC counts nothing, and as a user another process may be traced.
    "limits": set(ATTACKS)
    - {"memory", "shared", "raise", "core", "privilege", "descriptors", "environment"}
    - {"fork", "thread", "ptrace"},
}
MAYBE = {"fork", "thread", "ptrace"}


def clear(kind: str, found: Mapping[str, str]) -> dict[str, str]:
    """Return what does not depend on who runs it."""
    return {attack: said for attack, said in found.items() if kind != "limits" or attack not in MAYBE}


def expected(kind: str, *, network: bool) -> dict[str, str]:
    tried = [attack for attack in ATTACKS if (attack in NETWORK) == network]
    return clear(kind, {attack: "open" if attack in GAPS[kind] else "refused" for attack in tried})


def table() -> list[str]:
    """The lines of the table in docs/sandbox.md."""

    def cell(kind: str, attack: str) -> str:
        if kind == "limits" and attack in MAYBE:
            return "depends"
        return "**open**" if attack in GAPS[kind] else "refused"

    head = ["", *KINDS]
    rows = [[text, *(cell(kind, attack) for kind in KINDS)] for attack, text in ATTACKS.items()]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def test_the_table_in_the_documentation() -> None:
    text = (ROOT / "docs" / "sandbox.md").read_text(encoding="utf-8")
    assert "\n".join(table()) in text, "\n".join(table())


def kind_or_skip(kind: str) -> Sandbox:
    if reason := why_not(kind):
        pytest.skip(f"{kind}: {reason}")
    return Sandbox(kind)


@pytest.fixture(params=KINDS)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return kind_or_skip(str(request.param))


@pytest.fixture(params=ENFORCED)
def enforced(request: pytest.FixtureRequest) -> Sandbox:
    return kind_or_skip(str(request.param))


@pytest.fixture(scope="module")
def attacker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cc(SOURCE, tmp_path_factory.mktemp("attacker") / "attacker", "-O1", "-w")


@pytest.fixture
def begun(attacker: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running = []

    def begin(sandbox: Sandbox, *arguments: str, seconds: int = 30, writable: str | None = None) -> object:
        limits = Limits(seconds=seconds, file=1 << 20)
        running.append(sandbox.start([str(attacker), *arguments], {}, limits, writable=writable))
        return running[-1]

    yield begin  # type: ignore[misc]
    for process in running:
        stop(process)


AS_ROOT = pytest.mark.slow(
    reason="as root the same is tried always; a user needs another two processes of Python"
)
SAME_LIMIT = pytest.mark.slow(
    reason="a second of processor time; the limit is set in the same way for every kind"
)
WITHOUT_OR_WITH_NETWORK = pytest.mark.parametrize(
    "network", [pytest.param(False, id="local"), pytest.param(True, id="network", marks=pytest.mark.network)]
)


@pytest.mark.few(1, reason="the other kinds: half a second for each of 31 attacks")
@WITHOUT_OR_WITH_NETWORK
def test_what_it_refuses(sandbox: Sandbox, attacker: Path, tmp_path: Path, network: bool) -> None:
    found = clear(sandbox.kind, outcomes(attacker, tmp_path, sandbox, network=network))
    assert found == expected(sandbox.kind, network=network)


@pytest.mark.slow(reason="tells that the attacks work; test_what_it_refuses that none does")
@WITHOUT_OR_WITH_NETWORK
def test_without_a_sandbox_each_attack_works(attacker: Path, tmp_path: Path, network: bool) -> None:
    """Or the others would show nothing. An open file there cannot be, and limits depend on who runs this."""
    found = outcomes(attacker, tmp_path, OFF, network=network)
    same = {"descriptors", "environment", "raise", "core", "io_uring", "namespace", "ptrace"}
    assert {attack for attack, said in found.items() if said != "open"} <= same


class User:
    """Another user, and a Python that this user can run."""

    def __init__(self) -> None:
        self.python = ""
        names = ("python3", *(f"python3.{minor}" for minor in range(11, 15)))
        places = [
            sys.executable,
            *(f"{directory}/{name}" for directory in ("/usr/bin", "/usr/local/bin") for name in names),
        ]
        for python in places:
            if (
                os.access(python, os.X_OK)
                and self.run(python, "-c", "import tests.support.attacker").returncode == 0
            ):
                self.python = python
                return
        pytest.skip("there is no Python that another user can run, or the checkout cannot be read by one")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command,
                user=65534,
                group=65534,
                extra_groups=[],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError:
            return subprocess.CompletedProcess(command, 1)


@pytest.fixture(scope="module")
def user() -> User:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user; the other tests run as one now")
    return User()


@pytest.mark.few(1, reason="the other kinds, as a user")
@WITHOUT_OR_WITH_NETWORK
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=() if kind in ("namespaces", "landlock") else AS_ROOT) for kind in KINDS],
)
def test_what_it_refuses_to_a_user(kind: str, attacker: Path, user: User, network: bool) -> None:
    place = Path(user.run("mktemp", "-d").stdout.strip())
    program = place / "attacker"
    shutil.copy(attacker, program)
    program.chmod(0o755)
    try:
        run = user.run(
            user.python,
            "-c",
            f"from relink.system.sandbox.start import why_not; print(why_not({kind!r}) or '')",
        )
        assert run.returncode == 0, run.stderr
        if run.stdout.strip():
            pytest.skip(f"{kind}: {run.stdout.strip()}")
        words = [str(program), str(place), kind, *(["network"] if network else [])]
        run = user.run(user.python, "-m", "tests.support.attacker", *words)
        assert run.returncode == 0, run.stderr
    finally:
        shutil.rmtree(place)
    found = json.loads(run.stdout)
    assert clear(kind, found) == expected(kind, network=network)


@pytest.mark.few(1, reason="the same of other values")
def test_files_are_read_only_without_the_filter_too(
    enforced: Sandbox, attacker: Path, tmp_path: Path
) -> None:
    """A loader of another machine has no filter: the file system and the network are closed by the kind itself."""
    outside = tmp_path / "outside"
    outside.write_text("as it was")
    for attack in ("write", "truncate", "remove", "create-other"):
        name = tmp_path / "new" if attack == "create-other" else outside
        process = enforced.start([str(attacker), attack, str(name)], {}, Limits(seconds=5), native=False)
        assert process.communicate(timeout=60)[0] == "refused\n", attack
    assert sorted(os.listdir(tmp_path)) == ["outside"]
    assert outside.read_text() == "as it was"


def alive(token: str) -> list[str]:
    """Process ids of those whose command line has `token`, but for those that wait to be collected."""
    found = []
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if token.encode() in line.split(b"\0") and state != "Z" and int(pid) != os.getpid():
            found.append(pid)
    return found


def wait_for(condition: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.few(1, reason="a second of processor time for each kind")
@pytest.mark.parametrize(
    "sandbox",
    [pytest.param(kind, marks=() if kind in ("bubblewrap", "limits") else SAME_LIMIT) for kind in KINDS],
    indirect=True,
)
def test_processor_time_has_a_limit(sandbox: Sandbox, begun: Callable[..., subprocess.Popen[str]]) -> None:
    process = begun(sandbox, "loop", seconds=1)
    process.communicate(timeout=30)
    assert -status_of(sandbox, process.returncode) in (signal.SIGXCPU, signal.SIGKILL)


@pytest.mark.few(1, reason="the same of other values")
def test_stopped_with_all_that_belongs_to_it(
    sandbox: Sandbox, begun: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = begun(sandbox, "loop", str(tmp_path))
    wait_for(lambda: alive(str(tmp_path)))
    stop(process)
    wait_for(lambda: not alive(str(tmp_path)))


@pytest.mark.few(1, reason="the same of other values")
def test_it_does_not_outlive_relink(sandbox: Sandbox, attacker: Path, tmp_path: Path) -> None:
    program = (
        "from relink.system.sandbox.start import Limits, Sandbox\n"
        f"Sandbox({sandbox.kind!r}).start([{str(attacker)!r}, 'loop', {str(tmp_path)!r}], {{}}, Limits(60)).wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) as running:
        wait_for(lambda: alive(str(tmp_path)))
        running.kill()
    wait_for(lambda: not alive(str(tmp_path)))


@pytest.mark.few(4, reason="the same of other values")
@pytest.mark.parametrize(("what", "status"), [("crash", -11), ("abort", -6), ("nothing", 0)])
def test_how_it_ended_is_told(
    sandbox: Sandbox, begun: Callable[..., subprocess.Popen[str]], what: str, status: int
) -> None:
    process = begun(sandbox, what)
    process.communicate(timeout=30)
    assert status_of(sandbox, process.returncode) == status


@pytest.mark.few(1, reason="the same of other values")
def test_a_file_does_not_grow_without_end(
    sandbox: Sandbox, begun: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    given = tmp_path / "given"
    given.write_bytes(b"")
    process = begun(sandbox, "grow", str(given), "8", writable=str(given))
    process.communicate(timeout=30)
    assert status_of(sandbox, process.returncode) == -signal.SIGXFSZ
    assert given.stat().st_size == 1 << 20


CONSTRUCTOR = """
long calls(long number, const char *path, long flags, long mode) {
    long result;
    register long mode_ __asm__("r10") = mode;
    __asm__ volatile("syscall" : "=a"(result)
        : "a"(number), "D"(path), "S"(flags), "d"(mode), "r"(mode_) : "rcx", "r11", "memory");
    return result;
}
static void mark(void) { calls(2, "CANARY", 0x41, 0644); }
"""
CANARIES = {
    "constructor": CONSTRUCTOR + "__attribute__((constructor)) static void begin(void) { mark(); }",
    "audit": CONSTRUCTOR + "unsigned la_version(unsigned version) { mark(); return version; }",
    "ifunc": CONSTRUCTOR
    + "static void self(void) {} static void *pick(void) { mark(); return self; }"
    + 'void one(void) __attribute__((ifunc("pick"))); void (*pointer)(void) = one;',
}


@pytest.mark.few(1, reason="other canaries of the same code")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the canaries' system call is that of x86_64")
@pytest.mark.parametrize("canary", CANARIES)
@pytest.mark.parametrize("kind", ["off", *KINDS])
def test_code_of_a_wheel_that_does_run_writes_nothing(kind: str, canary: str, tmp_path: Path) -> None:
    """An audit library is loaded for DT_AUDIT before the loader looks whether it is a dry run (elf/rtld.c)."""
    sandbox = OFF if kind == "off" else kind_or_skip(kind)
    mark = tmp_path / "mark"
    source = CANARIES[canary].replace("CANARY", str(mark))
    library = shared(tmp_path / "libcanary.so", source)
    link = ["-Wl,--audit=libcanary.so", f"-Wl,-rpath,{tmp_path}"] if canary == "audit" else []
    program = cc(
        "int main(void){return 0;}", tmp_path / "program", *link, "-Wl,--no-as-needed", needed=[library]
    )
    # Called as a program the loader does not go back to a Python, so nothing but the wheel's files can be at fault.
    dry_run(find_target(), str(program), [str(library)], sandbox=sandbox)
    runs = canary == "audit" and kind in ("off", "limits")
    assert mark.exists() == runs


@pytest.mark.few(2, reason="other kinds of sandbox")
def test_the_loader_answers_the_same(sandbox: Sandbox, tmp_path: Path) -> None:
    one = shared(tmp_path / "libone.so.1", "extern int nowhere(void); int one(void) { return nowhere(); }")
    two = shared(
        tmp_path / "libtwo.so.1", "int two(void) { return 2; }", flags=["-Wl,-rpath,$ORIGIN"], needed=[one]
    )
    lost = shared(tmp_path / "stub" / "liblost.so.1")
    user = shared(tmp_path / "libuser.so", needed=[two, lost], flags=["-Wl,-rpath,$ORIGIN"])
    target = find_target()
    assert target.python is not None
    crash = tmp_path / "damaged.so"
    crash.write_bytes(two.read_bytes()[:5000])
    for program, preloads in (
        (target.python, []),
        (target.python, [str(user)]),
        (str(user), []),
        (str(two), []),
        (str(crash), []),
        ("/gone", []),
        (shutil.which("bash") or "/bin/sh", []),
    ):
        expected = dry_run(target, program, preloads, sandbox=OFF)
        assert dry_run(target, program, preloads, sandbox=sandbox) == expected
