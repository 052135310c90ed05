"""Report on a search: its status, a study for Optuna, and hyperparameters as table columns."""
