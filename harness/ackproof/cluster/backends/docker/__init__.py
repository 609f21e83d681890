"""Nodes in containers: another launch of the same cluster; no fault knows containers."""
