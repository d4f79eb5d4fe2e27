"""The script of the MLflow models that runs log: loads the weight file beside it, no pickle.

Input: a table with a `smiles` column, an `xyz` column (each cell the text of an XYZ file: a
geometry, in Å), or both (the geometry where there is one). Output: the input's columns and the
prediction's, one row per input row; a row that can't be used says why. A model of missing facts
takes the columns head, relation and tail, one of head and tail empty, and gives ten rows for each.
"""

from __future__ import annotations

import io
from typing import Any

import mlflow
from mlflow.pyfunc.model import PythonModel


class ZooModel(PythonModel):  # type: ignore[misc,unused-ignore]
    """An MLflow pyfunc around `zoo.load`."""

    def load_context(self, context: Any) -> None:
        import zoo

        self.model = zoo.load(context.artifacts["weights"])

    def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:
        import pandas as pd

        from zoo.errors import RequestError

        given = model_input.reset_index(drop=True)
        if self.model.spec.task == "link":
            return self.model.predict(given)
        if not {"smiles", "xyz"} & set(given.columns):
            raise RequestError("the input needs a column `smiles` or `xyz`")
        rows = given.reindex(columns=["xyz", "smiles"]).itertuples(index=False, name=None)
        items, reasons = zip(*map(_item, rows), strict=True) if len(given) else ((), ())
        own = [*self.model.columns, "valid", "reason", "warning"]
        predicted = self.model.predict(list(items))[own]
        for row, reason in enumerate(reasons):
            if reason:
                predicted.loc[row, "reason"] = reason
        return pd.concat([given.drop(columns=own, errors="ignore"), predicted], axis=1)


def _item(row: tuple[Any, Any]) -> tuple[Any, str]:
    """What to predict for a row's xyz and smiles, and why there is nothing."""
    from ase.io import read

    xyz, smiles = row
    if not isinstance(xyz, str) or not xyz.strip():
        return smiles, ""
    try:
        return read(io.StringIO(xyz), format="xyz"), ""
    except Exception as error:  # whatever ASE stumbles over
        first = str(error).strip().split("\n")[0]
        return None, f"not the text of an XYZ file: {first or type(error).__name__}"


mlflow.models.set_model(ZooModel())
