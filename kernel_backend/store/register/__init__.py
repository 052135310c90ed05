"""Store registered models: versions, and a linear log of changes for each model."""
