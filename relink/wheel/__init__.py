"""A wheel as an archive, read and written; nothing here knows ELF. The input is treated as hostile.

>>> from relink.wheel.archive import WheelArchive
>>> from relink.wheel.naming import relinked
>>> from relink.wheel.changes import Changes, NewContent
>>> from relink.wheel.writer import write_wheel
>>> with WheelArchive("x-1.0-cp312-cp312-manylinux_2_34_x86_64.whl") as archive:  # doctest: +SKIP
...     name = relinked(archive.name, local="rocm7.2.4", platform="linux_x86_64")
...     write_wheel(archive, Path("out"), Changes(name, {"x/x.so": NewContent(patched)}))

Nothing is re-exported here, so that reading a wheel does not import the writer.
"""
