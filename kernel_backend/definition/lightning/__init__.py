"""Read a cell written for Lightning: its module, data module and Trainer, by syntax tree alone."""
