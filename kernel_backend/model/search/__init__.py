"""Define the records of a hyperparameter search: space, events, decisions, and their effects on trials."""
