"""The job object of a notebook: an experiment's state, metrics, and its trained model."""
