"""Launch attempts on nodes that cannot read the home directory: fetch files for ranks, and send those they write."""
