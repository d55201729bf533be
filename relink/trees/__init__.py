"""Unpacked trees, relinked in a copy: a vendor's tarball, ``pip install --target``, a conda package's directory."""
