"""The views of datasets, items, uploads and images, one module for each noun."""
