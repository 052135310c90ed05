"""Records for display: overviews, curves, search status, and the selection of displayed trials."""
