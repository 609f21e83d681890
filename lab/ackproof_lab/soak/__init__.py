"""Soaks: a load of hours, audited window by window while it goes on. README.md beside this file is the map."""
