"""Train in loops that Daylight does not run itself: those of the user or of a framework."""
