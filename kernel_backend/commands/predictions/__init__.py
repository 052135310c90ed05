"""Define the verbs that predict with a trained model, and write the predictions to a file."""
