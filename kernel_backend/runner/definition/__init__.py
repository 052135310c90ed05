"""Load the user's training definition in a rank, call its functions, and check the state it depends on."""
