"""Who runs where, and why the others wait: plain functions of a picture of the cluster."""
