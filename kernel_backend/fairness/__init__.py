"""Share what all users of a service have in common: threads, and slow works of a kind."""
