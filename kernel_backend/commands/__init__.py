"""The verbs of `daylight` and `%dl`, a room each: what they take, what they do, and what they answer."""
