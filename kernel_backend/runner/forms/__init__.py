"""Train each form of definition: functions, or a loop of the user's."""
