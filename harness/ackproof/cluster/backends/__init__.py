"""Where nodes run: a folder per backend; `choice` goes from the name of a backend to its cluster."""
