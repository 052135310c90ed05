"""A worker: one rank of an attempt. It loads the definition, trains, checkpoints, and appends reports to a spool."""
