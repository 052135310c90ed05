"""Train in loops that Daylight does not own: the user's, or a framework's."""
