"""A whole index: wheels of many releases, relinked for several targets, published as static files."""
