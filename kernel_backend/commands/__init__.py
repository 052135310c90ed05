"""Define the verbs (subcommands) of `daylight` and `%dl`: their arguments, actions and answers."""
