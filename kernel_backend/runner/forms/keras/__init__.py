"""Train a compiled Keras model with Keras' own `fit`, on its torch backend."""
