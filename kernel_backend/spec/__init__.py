"""The configuration of a submission: command line options, hyperparameter assignments and the rules between them."""
