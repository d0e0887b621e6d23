"""The pages of results, judges, ratings by people, reports and exports, one module per subject."""
