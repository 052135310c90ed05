"""Records that users look at: overviews, curves, search status, and which trials are shown."""
