"""Real tasks on real data, and the run that shows them: see README.md beside this file."""
