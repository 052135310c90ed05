"""One launcher a node: starts its ranks, posts what they say, hands instructions down, ends the gang as one."""
