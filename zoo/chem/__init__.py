"""Molecules in: readers, conformers, checks, the report of invalid rows, the ASE calculator."""
