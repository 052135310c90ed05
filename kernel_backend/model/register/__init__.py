"""Records and rules of registered models: immutable versions, and aliases that move between them."""
