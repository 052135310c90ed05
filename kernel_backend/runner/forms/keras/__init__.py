"""Train a compiled Keras model with Keras' own `fit`, on the backend that the model is written for."""
