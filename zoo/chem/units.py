"""The unit that a column's name ends in."""

from __future__ import annotations

import re

_BRACKETS = re.compile(r"\[([^\[\]]{1,24})\]\s*$")
_PARENTHESES = re.compile(r"\(([^()]{1,24})\)\s*$")
_SYMBOL = re.compile(r"[A-Za-zµμÅ°%Ω]")
# What unit names are made of; in parentheses a name may say other things: "activity (human)".
_WORDS = {
    *("mol", "mmol", "umol", "µmol", "μmol", "nmol", "pmol", "mols"),
    *("M", "mM", "uM", "µM", "μM", "nM", "pM", "fM"),
    *("kg", "g", "mg", "ug", "µg", "μg", "ng", "L", "l", "mL", "ml", "uL", "µL", "μL", "litre"),
    *("J", "kJ", "cal", "kcal", "eV", "meV", "keV", "Hartree", "hartree", "Ha", "Eh", "Ry"),
    *("K", "°C", "degC", "°F", "Å", "A", "pm", "nm", "um", "µm", "μm", "mm", "cm", "m"),
    *("D", "Debye", "V", "mV", "S", "mS", "Pa", "kPa", "MPa", "GPa", "bar", "mbar", "atm"),
    *("s", "ms", "us", "µs", "ns", "ps", "fs", "min", "h", "hr", "hours", "d", "days"),
    *("Hz", "kHz", "MHz", "GHz", "THz", "ppm", "ppb", "%", "log", "log10", "ln", "pct"),
    *("atom", "Da", "kDa", "a.u.", "au", "bohr", "Bohr", "e", "C", "T", "W", "N", "mN"),
}
# Single letters that mean other things too are units only beside others.
_ALONE = _WORDS - {"A", "e", "C", "T", "N", "S", "W", "V", "d", "s", "m", "l", "atom", "log", "ln"}


def trailing_unit(name: str) -> str:
    """The unit a column's name ends in, as in `Tm (°C)`; "" where it is in doubt."""
    brackets = _BRACKETS.search(name)
    if brackets and _SYMBOL.search(brackets[1]):
        return brackets[1].strip()
    parentheses = _PARENTHESES.search(name)
    if parentheses is None:
        return ""
    text = parentheses[1].strip()
    words = [word for word in re.split(r"[\s/·*]+", text) if word]
    bare = [re.sub(r"\^?[-−]?\d+$", "", word) or word for word in words]
    if all(word in _WORDS for word in bare):
        return text if len(bare) > 1 or bare[0] in _ALONE else ""
    return ""
