"""The process that makes conformers. It stands apart because nothing in RDKit can be stopped from
inside: `EmbedParameters.timeout` of 2 s returned after 111 s for a molecule of 2,000 atoms, and a
thread can't be ended. The parent (conformers.py) kills this process when the time is up, which also
contains a crash of RDKit.

One line of JSON comes in for each molecule and one goes out. A request holds `smiles` or `mol`
(RDKit's binary form in base64), `seed` and `seconds`; an answer `numbers`, `positions`, `how` and
`warnings`, or a `reason`.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, cast

from zoo.chem.molecule import ETKDG, RANDOM
from zoo.chem.rdkit_log import caught

# RDKit's bounds matrix is quadratic in memory and its smoothing cubic in time: beyond this size it
# can't end within any time limit a person would set.
LARGEST = 5000

_FORCE_FIELD_STEPS = 200
_FORCE_FIELD_ROUNDS = 15
_LONGEST = 10**6  # seconds
_ORPHANED = 5.0  # seconds past the limit, by which the parent has certainly killed this process


class Refused(Exception):
    """The molecule can't be embedded; the text is the reason."""


def make_conformer(request: dict[str, Any]) -> dict[str, Any]:
    """A geometry for one molecule, as the module's docstring says."""
    deadline = time.monotonic() + float(request["seconds"])
    try:
        mol = _parse(request)
        warnings = _composition(mol)
        mol = _add_hydrogens(mol)
        how = _embed(mol, seed=int(request["seed"]), deadline=deadline)
        warnings += _optimise(mol, deadline=deadline)
    except Refused as error:
        return {"reason": str(error)}
    return {
        "numbers": [atom.GetAtomicNum() for atom in mol.GetAtoms()],
        "positions": mol.GetConformer().GetPositions().tolist(),
        "how": how,
        "warnings": warnings,
    }


def _parse(request: dict[str, Any]) -> Any:
    from rdkit import Chem

    if "mol" in request:
        return cast(Any, Chem).Mol(base64.b64decode(request["mol"]))
    if not request["smiles"].strip():
        raise Refused("an empty SMILES")
    smiles, *rest = request["smiles"].split(None, 1)
    if (rest and not rest[0].startswith("|")) or not smiles.isprintable():
        # RDKit would take what is in front of it and say nothing.
        raise Refused("a space, a line break or a control character within the SMILES")
    with caught() as error:
        mol: Any = Chem.MolFromSmiles(request["smiles"])
    if mol is None:
        said = error()
        raise Refused(f"RDKit refuses this SMILES: {said}" if said else "RDKit refuses this SMILES")
    return mol


def _composition(mol: Any) -> list[str]:
    """Refuse what has no atoms to place; warn of what a geometry can't show."""
    from rdkit import Chem

    if mol.GetNumAtoms() == 0:
        raise Refused("a molecule without atoms")
    if any(atom.GetAtomicNum() == 0 for atom in mol.GetAtoms()):
        raise Refused("holds a dummy atom (*), which is no element")
    warnings = electron_warnings(mol)
    fragments = len(Chem.GetMolFrags(mol))
    if fragments > 1:
        warnings.append(f"{fragments} separate fragments, placed arbitrarily to each other")
    return warnings


def electron_warnings(mol: Any) -> list[str]:
    """What numbers and positions can't show to a model: charge and unpaired electrons."""
    from rdkit import Chem

    warnings = []
    charge = Chem.GetFormalCharge(mol)
    if charge:
        warnings.append(f"net charge {charge:+d}, which a geometry doesn't show to the model")
    unpaired = sum(atom.GetNumRadicalElectrons() for atom in mol.GetAtoms())
    if unpaired:
        what = "1 unpaired electron" if unpaired == 1 else f"{unpaired} unpaired electrons"
        warnings.append(f"{what}, which a geometry doesn't show to the model")
    return warnings


def _add_hydrogens(mol: Any) -> Any:
    from rdkit import Chem

    mol = Chem.AddHs(mol)
    if mol.GetNumAtoms() > LARGEST:
        raise Refused(
            f"{mol.GetNumAtoms():,} atoms are too many to make a conformer of "
            f"(at most {LARGEST:,}): give a geometry"
        )
    return mol


def _embed(mol: Any, *, seed: int, deadline: float) -> str:
    """Place the atoms: ETKDGv3 within half of the time, then from random coordinates."""
    from rdkit.Chem import rdDistGeom

    for how in (ETKDG, RANDOM):
        left = deadline - time.monotonic()
        parameters: Any = rdDistGeom.ETKDGv3()
        parameters.randomSeed = seed
        parameters.useRandomCoords = how == RANDOM
        if how == ETKDG and hasattr(parameters, "timeout"):
            parameters.timeout = min(max(1, int(left / 2)), _LONGEST)  # seconds; 0: no limit
        with caught():
            if rdDistGeom.EmbedMolecule(mol, parameters) == 0:
                return how
    raise Refused(
        "no conformer found, neither with ETKDGv3 nor from random coordinates "
        "(strained or impossible stereochemistry?): give a geometry"
    )


def _optimise(mol: Any, *, deadline: float) -> list[str]:
    """Relax with MMFF94, or UFF where MMFF94 has no parameters; say if neither did or ended."""
    from rdkit.Chem import rdForceFieldHelpers as force_fields

    warnings = []
    relax: Callable[..., int]
    with caught():
        if force_fields.MMFFHasAllMoleculeParams(mol):
            name, relax = "MMFF94", force_fields.MMFFOptimizeMolecule
        elif force_fields.UFFHasAllMoleculeParams(mol):
            name, relax = "UFF", force_fields.UFFOptimizeMolecule
            warnings.append("optimised with UFF: MMFF94 has no parameters for it")
        else:
            return ["not optimised: neither MMFF94 nor UFF has parameters for it"]
        for _ in range(_FORCE_FIELD_ROUNDS):
            start = time.monotonic()
            status = relax(mol, maxIters=_FORCE_FIELD_STEPS, ignoreInterfragInteractions=False)
            # The next round takes as long as this one did, and a rough geometry beats none.
            now = time.monotonic()
            if status != 1 or now + 2 * (now - start) > deadline:
                break
    if status != 0:
        warnings.append(f"the {name} optimisation did not converge")
    return warnings


def serve() -> None:
    """Answer requests until the parent closes its end, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to act on
    # Whatever prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        from rdkit import Chem  # noqa: F401
        from rdkit.Chem import rdDistGeom, rdForceFieldHelpers  # noqa: F401

        ready: dict[str, Any] = {"ready": True}
    except Exception as error:
        ready = {"ready": False, "reason": f"{type(error).__name__}: {error}"}
    _answer(answers, ready)
    for line in sys.stdin:
        request = json.loads(line)
        _alarm(float(request["seconds"]) + _ORPHANED)
        try:
            answer = make_conformer(request)
        except MemoryError:
            answer = {"reason": "not enough memory to make a conformer"}
        except Exception as error:  # RDKit raises many kinds; one molecule must not end the rest
            text = str(error).strip().splitlines()
            answer = {"reason": f"RDKit failed: {text[0] if text else type(error).__name__}"}
        _alarm(0)
        _answer(answers, answer)


def _alarm(seconds: float) -> None:
    """Have the system end this process, if the parent is no longer there to do it."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, min(seconds, _LONGEST))


def _answer(stream: Any, answer: dict[str, Any]) -> None:
    stream.write(json.dumps(answer) + "\n")
    stream.flush()
