"""Run gangs as jobs of Slurm: sbatch starts their launchers, one squeue a second tells about all of them."""
