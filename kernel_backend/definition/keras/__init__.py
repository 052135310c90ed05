"""Parse a cell that uses Keras: a compiled model, its data, and callbacks."""
