"""Run gangs as Slurm jobs: sbatch starts their launchers, and one squeue per second reads the states of all jobs."""
