"""The pages of experiments, runs, trials and endpoints, one module per noun."""
