"""Who speaks: a token in, a person out."""
