"""A wheel as an archive, read and written; nothing here knows ELF. The input is treated as hostile.

Nothing is re-exported here, so that reading a wheel does not import the writer.
"""
