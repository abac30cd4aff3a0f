"""The command line: inputs and pictures, no model."""
