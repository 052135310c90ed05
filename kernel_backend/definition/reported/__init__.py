"""Find the names of the values that a program reports: in the text that it prints, and in its source."""
