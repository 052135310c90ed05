"""Run searches: create searchers, store their decisions, and run custom search classes in separate processes."""
