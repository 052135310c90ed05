"""Records of a hyperparameter search: its space, its events and decisions, and their effects on trials."""
