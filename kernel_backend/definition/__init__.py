"""Parse a training definition (the submitted cell or program) without running it: its functions and hyperparameters."""
