"""A wheel as an archive: read with suspicion, written with care; knows no ELF.

>>> from relink.wheel.archive import WheelArchive
>>> from relink.wheel.naming import relinked
>>> from relink.wheel.changes import Changes, Replacement
>>> from relink.wheel.writer import write_wheel
>>> with WheelArchive("x-1.0-cp312-cp312-manylinux_2_34_x86_64.whl") as archive:  # doctest: +SKIP
...     name = relinked(archive.name, local="rocm7.2.4", platform="linux_x86_64")
...     write_wheel(archive, Path("out"), Changes(name, {"x/x.so": Replacement(Path("patched.so"))}))

Nothing is gathered here: to read a wheel, what writes one need not be loaded.
"""
