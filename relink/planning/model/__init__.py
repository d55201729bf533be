"""The model of a plan and its JSON: data only."""
