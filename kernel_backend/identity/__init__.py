"""Who speaks: a token in, a user's name out."""
