"""Define the verbs of `daylight` and `%dl`, with their arguments, actions and answers."""
