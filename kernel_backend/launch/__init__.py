"""Launch an attempt's ranks on a node, upload reports, pass on instructions and end the gang as one."""
