"""Our own files: whole or not there, run folders that replace only themselves, checkpoints."""
