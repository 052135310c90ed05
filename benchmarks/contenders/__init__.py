"""What the benchmarks of training share: who is measured, on what work, and how they take turns."""
