"""Train each form of definition: functions, a loop, a program, Lightning, Keras, Hugging Face, a command."""
