"""Run a job's training, in each of the forms in which users can write it.

The forms are functions such as `model` and `train_data`, a function with a loop of its own, an unmodified program, a
Lightning module, a Keras model, a Hugging Face Trainer, a command line, and a cell that is run as it is.
"""
