"""Read a cell for Keras: a compiled model, its data, and the callbacks."""
