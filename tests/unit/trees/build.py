"""A tree to be relinked, and what is compared before and after."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.support.cc import cc, shared

BUILD = "-Wl,--enable-new-dtags,-rpath,/build/rocm/lib"


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


def snapshot(tree: Path) -> dict[str, tuple[object, ...]]:
    """Mode, time and content of everything in a tree; and the inode of what is no directory."""
    found: dict[str, tuple[object, ...]] = {}
    for path in tree.rglob("*"):
        status = path.lstat()
        data: object = None
        if path.is_symlink():
            data = os.readlink(path)
        elif path.is_file():
            data = path.read_bytes()
        inode = None if data is None else status.st_ino
        found[str(path.relative_to(tree))] = (status.st_mode, inode, status.st_mtime_ns, data)
    return found
