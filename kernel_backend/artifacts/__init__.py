"""Store artifacts, files that a training saves for users, and provide `run`, which a definition calls."""
