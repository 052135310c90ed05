"""Predict the rows of a dataset with a trained model, shard by shard."""
