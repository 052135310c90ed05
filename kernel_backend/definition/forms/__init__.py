"""Describe each training form by a record, and find the form of a cell or program."""
