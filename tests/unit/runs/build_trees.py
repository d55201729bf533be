"""Trees to be relinked, and what is compared before and after."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from tests.support.cc import cc, shared

BUILD = "-Wl,--enable-new-dtags,-rpath,/build/rocm/lib"
HOLE = 8 << 20  # bytes
JOURNAL = {"state": "committing", "files": [], "pending": [], "copy": 0}

Facts = tuple[object, ...]


def make_vendor_tree(root: Path) -> Path:
    """A vendor's tree: a module and a program with the search path of a build machine, the library in another directory."""
    hip = shared(root / "libhip.so.7", "int hip(void){return 41;}")
    (root / "tree/core/lib").mkdir(parents=True)
    shutil.copy(hip, root / "tree/core/lib/libhip.so.7.2")
    (root / "tree/core/lib/libhip.so.7").symlink_to("libhip.so.7.2")
    source = "extern int hip(void); int g(void){return hip()+1;}"
    shared(root / "tree/mod/m.so", source, needed=[hip], flags=[BUILD])
    main = 'extern int hip(void);\nextern int puts(const char *);\nint main(void){puts("ran"); return hip()!=41;}'
    cc(main, root / "tree/bin/driver", BUILD, needed=[hip])
    (root / "tree/README").write_text("words")
    return root / "tree"


def add_rarities(tree: Path) -> Path:
    """Add what a tarball can have beside files: links, set-id bits, holes, read-only directories, a FIFO; and old times."""
    os.link(tree / "mod/m.so", tree / "mod/again.so")
    os.link(tree / "README", tree / "READTHIS")
    (tree / "deep/er").mkdir(parents=True)
    os.link(tree / "mod/m.so", tree / "deep/er/other.so")
    (tree / "deep/er/up").symlink_to("../../..")
    (tree / "deep/nowhere").symlink_to("not/there")
    (tree / "bin/tool").write_text("#!/bin/sh\nexit 0\n")
    (tree / "bin/tool").chmod(0o4755)
    with (tree / "sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(HOLE)
        file.write(b"end")
    os.mkfifo(tree / "deep/pipe")
    (tree / "d-1.dist-info").mkdir()
    (tree / "d-1.dist-info/RECORD").write_text(
        "mod/m.so,sha256=old,3\nREADME,sha256=same,5\nd-1.dist-info/RECORD,,\n"
    )
    for number, path in enumerate(sorted(tree.rglob("*"), reverse=True)):
        os.utime(path, ns=(10**18 + number, 10**18 + number), follow_symlinks=False)
    (tree / "deep/er").chmod(0o555)
    (tree / "deep").chmod(0o2555)
    return tree


def snapshot(tree: Path) -> dict[str, Facts]:
    """Mode, owner, times, inode and content of a tree and of everything in it."""
    found: dict[str, Facts] = {}
    for path in (tree, *sorted(tree.rglob("*"))):
        status = path.lstat()
        facts = (status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, status.st_ino)
        data: object = None
        if path.is_symlink():
            data = os.readlink(path)
        elif path.is_file():
            data = path.read_bytes()
        found[str(path.relative_to(tree))] = (*facts, status.st_ctime_ns, data)
    return found


def kept(tree: Path) -> dict[str, Facts]:
    """What a copy of a tree has to have: kind, mode but for set-id bits, time and content; of no FIFO."""
    bits = stat.S_ISUID | stat.S_ISGID
    facts = {name: facts for name, facts in snapshot(tree).items() if not stat.S_ISFIFO(int(str(facts[0])))}
    return {name: (int(str(found[0])) & ~bits, found[3], found[6]) for name, found in facts.items()}
