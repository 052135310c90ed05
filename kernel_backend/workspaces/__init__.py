"""What the service does with files of an owner, and where: by itself, or as that Unix user."""
