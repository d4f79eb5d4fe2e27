"""The script of the MLflow models that runs log: loads the weight file beside it, no pickle.

Input: a table with a `smiles` column (or `xyz`, each cell the text of an XYZ file: a geometry, in
Å). Output: as `predict`, one row per input row.
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
        if "xyz" not in model_input.columns:
            return self.model.predict(model_input)
        from ase.io import read

        atoms = [read(io.StringIO(text), format="xyz") for text in model_input["xyz"]]
        return self.model.predict(atoms)


mlflow.models.set_model(ZooModel())
