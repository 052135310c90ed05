"""Train in loops that are not ours: the user's own, or a framework's."""
