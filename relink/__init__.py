"""relink: take a wheel built against a vendor's ROCm, give back one that runs on yours."""

# Here, not looked up among what is installed: importlib.metadata takes as long to load as Python itself.
__version__ = "0.1.0"
