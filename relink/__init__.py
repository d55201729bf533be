"""relink: take a wheel built against a vendor's ROCm, give back one that runs on yours."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        """Look the version up when it is asked for: importlib.metadata is slow to load."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

        try:
            return version("rocm-relink")
        except PackageNotFoundError:  # a source tree that was never installed
            return "0+unknown"
