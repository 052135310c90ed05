"""Train each form of submission: functions, a loop, a program, Lightning, Keras, Hugging Face, a command."""
