"""Run the control loop: start attempts, end them, and store what they report."""
