"""Launch an attempt's ranks on one node, upload their reports, pass on instructions, and end them together."""
