"""relink: take a wheel built against a vendor's ROCm, give back one that runs on yours."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("rocm-relink")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
