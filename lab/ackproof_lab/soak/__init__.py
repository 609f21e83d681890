"""Soaks: a load of hours, audited window by window while it goes on. See README.md in this folder."""
