"""Parse programs (scripts) that contain their own training loop, without changes to their source."""
