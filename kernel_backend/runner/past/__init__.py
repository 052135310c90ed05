"""Run the setup of a restarted program with its files as they were when the program began."""
