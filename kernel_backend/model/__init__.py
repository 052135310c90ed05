"""Data model: records, states, events and the contract of a definition. Standard library and pydantic only."""
