"""Parse programs that contain their own training loop, without changes to their source."""
