"""Load the user's training functions in a rank, call them, and check the notebook values that they depend on."""
