"""The user's training definition in a rank: load it, call its functions, and check the state it depends on."""
