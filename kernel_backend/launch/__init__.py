"""Launch the ranks of an attempt on a node, upload their reports, pass on instructions, and end them together."""
