#!/usr/bin/env python3
"""Run the walk of docs/start.md in a chroot of Debian sid with its ROCm 7.2, and write what it prints into the page.

``scripts/user_story.py ROOT``, as root, by the Python of .venv. ROOT is made by debootstrap if it is not there (11 GB), with this
machine's mirror and certificates; a copy of the last commit is put into it. The commands are those of the blocks that say
``by scripts/user_story.py``; they run one after another in one shell, in a directory that is made for them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TREE))

from tests.support import transcripts  # noqa: E402

PAGE = TREE / "docs/start.md"
MARK = "<!-- not run: by scripts/user_story.py, in a chroot of Debian sid -->"
ROCM = (
    "libamdhip64-7",
    "libmigraphx-c3",
    "libmiopen1",
    "libhipblas3",
    "libhipfft0",
    "libhipsolver1",
    "libhipsparse4",
)
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"


def main(root: Path) -> int:
    """Make the chroot, run the commands in it, rewrite the page; return an exit code."""
    if os.getuid():
        sys.stderr.write("a chroot needs root\n")
        return 2
    if not (root / "usr/bin/git").exists():
        make(root)
    home = root / transcripts.HOME[1:]
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{TREE}", home / "relink"], check=True)
    markdown = PAGE.read_text(encoding="utf-8")
    asked = transcripts.commands(markdown, MARK)
    results = transcripts.run(asked, root, environment(), inside(root))
    for command, result in zip(asked, results, strict=False):
        sys.stdout.write(f"$ {command.text}\n{result.output}")
    if len(results) < len(asked):
        return 1
    PAGE.write_text(transcripts.rewritten(markdown, asked, results), encoding="utf-8")
    return 0


def make(root: Path) -> None:
    """Make the chroot: Debian sid, and ROCm from experimental, which has its newest release."""
    wanted = ("indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian")
    listed = subprocess.run(["apt-get", *wanted], capture_output=True, text=True, check=True).stdout.split()
    mirror = min(address for address in listed if "security" not in address)
    packages = "--include=ca-certificates,git,python3,python3-venv"
    subprocess.run(["debootstrap", "--variant=minbase", packages, "sid", root, mirror], check=True)
    shutil.copyfile(f"/{CERTIFICATES}", root / CERTIFICATES)
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    ways = ("apt-config", "dump", "--format", '%f "%v";%n', "Acquire")  # how this machine reaches its mirror
    (root / "etc/apt/apt.conf.d/90ways").write_bytes(
        subprocess.run(ways, capture_output=True, check=True).stdout
    )
    with (root / "etc/apt/sources.list").open("a") as file:
        file.write(f"deb {mirror} experimental main\n")
    for words in (
        ("update", "-qq"),
        ("install", "-qq", "--no-install-recommends", "-t", "experimental", *ROCM),
    ):
        command = [*inside(root), "apt-get", "-y", *words]
        subprocess.run(command, env={**environment(), "DEBIAN_FRONTEND": "noninteractive"}, check=True)


def inside(root: Path) -> list[str]:
    """Return the words before a command that run it in the chroot, with /proc and /dev until it ends."""
    mounts = f"mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev && exec chroot {root} "
    return ["unshare", "--mount", "--pid", "--fork", "sh", "-c", mounts + '"$@"', "sh"]


def environment() -> dict[str, str]:
    """Return the variables of the commands: this machine's ways to a package index, and nothing else of it."""
    ways = {name: value for name, value in os.environ.items() if name.endswith(("_proxy", "_INDEX_URL"))}
    quiet = {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_DEFAULT_TIMEOUT": "180",
        "PIP_CERT": f"/{CERTIFICATES}",
    }
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", **ways, **quiet}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
