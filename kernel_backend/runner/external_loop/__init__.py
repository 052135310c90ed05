"""Train in loops that the user or a framework runs, instead of Daylight's own loop."""
