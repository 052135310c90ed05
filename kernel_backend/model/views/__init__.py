"""Define records for display: overviews, curves, search status, and the trials that are displayed."""
