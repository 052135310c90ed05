"""Turn bare Linux machines into a small Slurm cluster from the distribution's packages: `daylight cluster`."""
