"""Train each form in which users submit: functions, a loop, a program, Lightning, Keras, Hugging Face, a command."""
