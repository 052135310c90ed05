"""Define the data model: records, states, events and identifiers. Imports only the standard library and pydantic."""
