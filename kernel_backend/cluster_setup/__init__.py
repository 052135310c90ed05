"""Turn bare Linux machines into a small Slurm cluster, with the Slurm of their distribution: `daylight cluster`."""
