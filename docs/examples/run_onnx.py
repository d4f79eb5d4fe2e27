"""Runs a model of `zoo export --format onnx` with ONNX Runtime alone: no zoo, no torch.

    python run_onnx.py schnet-qm9.U0.onnx

The batch is the one beside the model; docs/fixed-shapes.md says how to make others.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

path = sys.argv[1]
facts = json.loads(Path(f"{path}.json").read_text())
assert hashlib.sha256(Path(path).read_bytes()).hexdigest() in facts["files"].values(), "changed"

batch = np.load(f"{path}.npz")
inputs = {i["name"]: batch[f"in.{i['name']}"] for i in facts["inputs"]}
(scaled,) = onnxruntime.InferenceSession(path).run(["scaled"], inputs)
error = np.abs(scaled - batch["out.scaled"]).max()

# A property is the sum of its atoms' shares, plus the mean, plus the output in units of `std`.
scale, unit = facts["unscale"], facts["properties"][0]["unit"]
shares = np.array([scale["per_atom"].get(str(z), 0.0) for z in inputs["z"].tolist()])
atoms = np.bincount(inputs["batch"], shares, minlength=len(scaled))
values = atoms + scale["mean"] + scale["std"] * scaled[:, 0].astype(np.float64)
real = np.bincount(inputs["batch"], inputs["nodes_mask"], minlength=len(scaled)) > 0
print(json.dumps({"unit": unit, "values": values[real].tolist(), "error": float(error)}))
