"""Run the export pipeline: lower a model, describe and publish the files."""
