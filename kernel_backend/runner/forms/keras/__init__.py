"""Train a compiled Keras model by Keras' own `fit`, on its torch backend."""
