"""The pages of experiments, runs, trials and endpoints, a module for each noun."""
