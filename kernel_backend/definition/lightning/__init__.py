"""Parse a Lightning cell from its syntax tree: its module, data module and Trainer."""
