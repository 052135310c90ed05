"""Parse a notebook cell that uses Lightning from its syntax tree: its module, data module and Trainer."""
