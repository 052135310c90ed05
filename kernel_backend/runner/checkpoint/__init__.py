"""Save and restore a training: model, optimizer, schedule, data position and random states."""
