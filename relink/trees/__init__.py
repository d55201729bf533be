"""Unpacked trees, relinked in place: a vendor's tarball, ``pip install --target``, a conda package's directory."""
