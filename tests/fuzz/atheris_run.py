"""Run atheris on one target: ``python -m tests.fuzz.atheris_run TARGET [OPTION OF LIBFUZZER…] DIRECTORY…``."""

from __future__ import annotations

import sys

import atheris

__all__: list[str] = []


def main() -> None:
    """Fuzz one target. relink alone is instrumented, so what it imports must not be there before."""
    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=["relink"]):
        from tests.fuzz.atheris_targets import attempt  # noqa: PLC0415
    atheris.Setup(sys.argv, lambda data: attempt(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
