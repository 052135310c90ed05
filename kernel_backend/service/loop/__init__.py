"""Run the control loop: start attempts, end them, and store the records that they report."""
