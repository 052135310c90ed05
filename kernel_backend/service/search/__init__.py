"""Running searches: their searchers, what each has decided, and processes of custom search classes."""
