"""Run one rank of an attempt: load the definition, train, save checkpoints and append reports for the launcher."""
