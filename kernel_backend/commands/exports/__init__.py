"""Export experiments: as CSV, and as event files of TensorBoard."""
