"""The magics `%%dlsubmit` and `%dl`: parse a line, capture the cell, submit, and show the answer."""
