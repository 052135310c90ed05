"""Load the user's training definition in a rank, call its functions, and check notebook state that it depends on."""
