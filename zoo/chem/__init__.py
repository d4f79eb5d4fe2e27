"""SMILES, SDF and Atoms in; the validation report; the ASE calculator."""
