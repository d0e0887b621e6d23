"""The pages of datasets, items, uploads and images, a module for each noun."""
