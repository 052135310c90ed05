"""Run searches: their searchers, stored decisions, and processes of custom search classes."""
