"""Run searches: create the objects that choose trials, store their decisions, and run custom search classes."""
