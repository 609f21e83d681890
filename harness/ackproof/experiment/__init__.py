"""An experiment as data: its parts, roles, triggers and links, and the base class of its faults.

This package holds frozen types and the grammar of their texts. Files are read by `plan`; the kinds of faults are in
`faults`.
"""
