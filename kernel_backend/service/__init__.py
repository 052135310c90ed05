"""The service: reads what is true, asks for decisions, carries them out."""
