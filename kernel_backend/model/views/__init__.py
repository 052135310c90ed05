"""Define the records that are displayed: overviews, curves, search status, and which trials of a search are shown."""
