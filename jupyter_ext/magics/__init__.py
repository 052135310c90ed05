"""Provide the magics `%%dlsubmit` and `%dl`: parse a line, capture the cell, submit, show the answer."""
