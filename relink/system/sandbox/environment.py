"""The environments of the programs that relink starts: each gets what it needs, and nothing that would load code into it."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from typing import Final

_USER: Final = (
    "HOME",
    "USER",
    "LOGNAME",
    "PATH",
    "TMPDIR",
    "LANG",
    "LC_*",
    "XDG_*",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
NIX: Final = (*_USER, "NIX_*", "IN_NIX_SHELL", "LOCALE_ARCHIVE")
"""What nix-instantiate and nix-store read (nix(1), "Common environment variables"). They find their libraries by RUNPATH."""
# Python's own variables are there by which relink itself was found and by which it runs; what pip and the compiler read; and what
# the user's shell says about the terminal.
DEMO: Final = (
    *(
        *_USER,
        "LD_LIBRARY_PATH",
        "NIX_*",
        "LOCALE_ARCHIVE",
        "SOURCE_DATE_EPOCH",
        "RELINK_*",
    ),
    *(
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONNOUSERSITE",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONPYCACHEPREFIX",
        "VIRTUAL_ENV",
    ),
    *("PIP_*", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    *(
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
        "CC",
        "CFLAGS",
        "LDFLAGS",
        "CPATH",
        "LIBRARY_PATH",
    ),
    *("TERM", "COLORTERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"),
)
"""What the demo reads, beside the variables of the vendors: it runs relink, pip and a C compiler."""


def make_child_environment() -> dict[str, str]:
    """Return relink's environment for a program that it starts, less what would load code into it (ld.so(8), python(1)).

    LD_LIBRARY_PATH stays: a Python may find its own library by it. The loader in its dry run and patchelf get no environment.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name == "LD_LIBRARY_PATH" or not name.startswith(("LD_", "GLIBC_", "PYTHON"))
    }


def make_named_environment(patterns: Sequence[str]) -> dict[str, str]:
    """Return the variables of relink's environment that one of the globs names."""
    return {
        name: value
        for name, value in os.environ.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
