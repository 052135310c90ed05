"""Report on a search: its status, its Optuna study, and its parameters as table columns."""
