"""Access the files of an owner's trainings, in the service's own process or as the owner's Unix user."""
