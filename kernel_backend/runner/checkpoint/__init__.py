"""Save and restore a training: model, optimizer, schedule, place in the data and random states."""
