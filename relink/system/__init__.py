"""What every other package stands on: errors, files, processes, the sandbox, findings."""
