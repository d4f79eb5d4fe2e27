"""Trains, predicts, benchmarks and compiles the model in this folder under PopTorch 3.4.

    python run_ipu.py train --epochs 30 --out trained.safetensors
    python run_ipu.py infer --weights trained.safetensors
    python run_ipu.py bench
    python run_ipu.py compile --out model.poptorch      (needs the SDK, no IPU)

Needs torch, numpy, safetensors and poptorch. Settings are in options.json. Prints JSON lines; logs
to MLflow too where that is installed and MLFLOW_TRACKING_URI is set.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import os
import sys
import time

import numpy as np
import poptorch
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["train", "infer", "bench", "compile"])
    parser.add_argument("--weights", help="another weight file than this folder's")
    parser.add_argument("--epochs", type=int, help="train: passes over the packs")
    parser.add_argument("--steps", type=int, help="train, bench: stop after so many steps")
    parser.add_argument("--in-order", action="store_true", help="train: don't shuffle the packs")
    parser.add_argument("--executable", help="train, infer, bench: what `compile` wrote")
    parser.add_argument("--inference", action="store_true", help="bench, compile: not training")
    parser.add_argument("--ipu-version", type=int, default=2, help="compile: 2, or 21 for FP8")
    parser.add_argument("--out", help="file to write")
    given = parser.parse_args()
    verify()
    options = read_json("options.json")
    tensors = load_file(path("constants.safetensors"))
    start = "initial" if given.what == "train" else "weights"
    given.weights = given.weights or path(start + ".safetensors")
    tensors.update(load_file(given.weights))
    {"train": train, "infer": infer, "bench": bench, "compile": compile_only}[given.what](
        given, options, tensors
    )


def path(*parts):
    return os.path.join(HERE, *parts)


def read_json(name):
    with open(path(name), encoding="utf-8") as file:
        return json.load(file)


def verify():
    """Refuse a folder whose files aren't the exported ones; options.json is the user's to edit."""
    for name, digest in read_json("manifest.json").items():
        found = hashlib.sha256()
        with open(path(name), "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                found.update(block)
        if found.hexdigest() != digest:
            sys.exit("%s isn't the file that was exported; export the folder anew" % path(name))


class Log:
    """JSON lines on stdout, and MLflow where it is set up."""

    def __init__(self, options, what):
        self.mlflow = None
        if os.environ.get("MLFLOW_TRACKING_URI"):
            try:
                import mlflow
            except ImportError:
                return
            self.mlflow = mlflow
            mlflow.set_experiment(options["entry"])
            mlflow.start_run(run_name="ipu-" + what)
            flat = {k: v for k, v in options.items() if not isinstance(v, (dict, list))}
            mlflow.log_params(flat)

    def __call__(self, step=None, **values):
        print(json.dumps(dict(values, step=step)), flush=True)
        if self.mlflow:
            numbers = {k: v for k, v in values.items() if isinstance(v, (int, float))}
            self.mlflow.log_metrics(numbers, step=step or 0)


class Packs:
    """The packs of a split, memory-mapped; several of them are laid end to end on dim 0, where
    PopTorch takes them apart again."""

    def __init__(self, split, inputs):
        folder = path("data", split)
        self.inputs = inputs
        self.arrays = {
            name: np.load(os.path.join(folder, name + ".npy"), mmap_mode="r")
            for name in inputs
            if name != "share"
        }
        self.labels = np.load(os.path.join(folder, "labels.npy"))
        self.graph_id = np.load(os.path.join(folder, "graph_id.npy"), mmap_mode="r")

    def __len__(self):
        return len(self.labels)

    def together(self, numbers, count):
        """The inputs of these packs; `count` labels are in one optimiser step."""
        rows = {}
        for name, array in self.arrays.items():
            chosen = np.ascontiguousarray(array[numbers])
            rows[name] = torch.from_numpy(chosen.reshape((-1, *chosen.shape[2:])))
        rows["share"] = torch.tensor([1.0 / max(1.0, float(c)) for c in count], dtype=torch.float32)
        return [rows[name] for name in self.inputs]


def make_options(options, training, offline=None):
    made = poptorch.Options()
    made.deviceIterations(options["device_iterations"] if training else 1)
    made.replicationFactor(options["replicas"] if training else 1)
    if training:
        made.Training.gradientAccumulation(options["gradient_accumulation"])
        made.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
        made.outputMode(poptorch.OutputMode.All)
        if options["replicas"] > 1 and options["changes_buffers"]:
            made.broadcastBuffers(False)
    proportion = options["available_memory_proportion"]
    if proportion is not None:
        made.setAvailableMemoryProportion({"IPU0": proportion})
    if options["executable_cache"]:
        made.enableExecutableCaching(options["executable_cache"])
    made.randomSeed(options["seed"])
    if offline is not None:
        made.useOfflineIpuTarget(offline)
    return made


def make_optimiser(options, model):
    """AdamW, whose decay leaves vectors alone; the learning rate changes from step to step."""
    held = dict(model.named_parameters())
    matrices = [p for n, p in held.items() if p.ndim >= 2]
    vectors = [p for n, p in held.items() if p.ndim < 2]
    chosen = options["optimiser"]
    groups = [
        {"params": matrices, "weight_decay": chosen["weight_decay"]},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return poptorch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=rate(options, 0),
        betas=tuple(chosen["betas"]),
        eps=chosen["eps"],
        weight_decay=chosen["weight_decay"],
        max_grad_norm=chosen["clip_norm"],
    )


def rate(options, step):
    """The learning rate of a step: linear warm-up, then cosine to zero, or constant."""
    chosen = options["optimiser"]
    warm = min(1.0, (step + 1) / (chosen["warmup_steps"] + 1))
    if chosen["schedule"] != "cosine":
        return chosen["lr"] * warm
    left = max(1, chosen["steps"] - chosen["warmup_steps"])
    done = max(0, step - chosen["warmup_steps"]) / left
    return chosen["lr"] * warm * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def per_call(options):
    """Optimiser steps of one call, and packs of one step."""
    return options["device_iterations"], options["gradient_accumulation"] * options["replicas"]


def calls(options, packs, order):
    """Packs of each call, in order; the last call is filled up with packs of no weight."""
    steps, size = per_call(options)
    for begin in range(0, len(order), steps * size):
        chosen = order[begin : begin + steps * size]
        real = len(chosen)
        chosen = np.concatenate([chosen, np.zeros(steps * size - real, chosen.dtype)])
        labels = packs.labels[chosen].astype(float)
        labels[real:] = 0.0
        # Of one step are the packs that a device iteration takes: all its micro-batches.
        counts = labels.reshape(steps, size).sum(1)
        weights = np.repeat(counts, size)
        weights[real:] = np.inf
        yield chosen, weights, labels


def train(given, options, tensors):
    from model import Train

    log = Log(options, "train")
    model = Train(tensors).train()
    names = options["names"]
    optimiser = make_optimiser(options, model)
    executor = poptorch.trainingModel(model, make_options(options, True), optimiser)
    if given.executable:
        executor.loadExecutable(given.executable)
    packs = Packs("train", options["train_inputs"])
    epochs = options["epochs"] if given.epochs is None else given.epochs
    steps_a_call, size = per_call(options)
    step = 0
    for epoch in range(epochs):
        order = np.arange(len(packs))
        if not given.in_order:
            np.random.RandomState(options["seed"] + epoch).shuffle(order)
        began, graphs = time.time(), 0
        for chosen, weights, labels in calls(options, packs, order):
            for group in optimiser.param_groups:
                group["lr"] = rate(options, step)
            executor.setOptimizer(optimiser)
            losses = executor(*packs.together(chosen, weights)).reshape(steps_a_call, size)
            by_step = losses.sum(1).tolist()
            graphs += int(labels.sum())
            if not all(math.isfinite(loss) for loss in by_step):
                sys.exit("the loss is %s at step %d; nothing was written" % (by_step, step))
            for loss, count in zip(by_step, labels.reshape(steps_a_call, size).sum(1)):
                if count:
                    step += 1
                    log(step=step, epoch=epoch + 1, loss=loss)
            if given.steps is not None and step >= given.steps:
                break
        log(step=step, epoch=epoch + 1, labels_per_s=graphs / (time.time() - began))
        if given.steps is not None and step >= given.steps:
            break
    executor.copyWeightsToHost()
    out = given.out or path("trained.safetensors")
    save_weights(out, model, names, given.weights)
    log(step=step, wrote=out)


def save_weights(out, model, names, like):
    """A weight file that the zoo loads: the same spec, the tensors as they are now."""
    with safe_open(like, "pt") as file:
        metadata = file.metadata()
    held = dict(model.named_parameters())
    held.update(model.named_buffers())
    state = {name: held[member].detach().cpu().contiguous() for member, name in names.items()}
    kept = load_file(like)
    for name, value in kept.items():
        state.setdefault(name, value)
        state[name] = state[name].to(value.dtype)
    save_file(state, out + ".partial", metadata)
    os.replace(out + ".partial", out)


def infer(given, options, tensors):
    from model import Infer

    executor = poptorch.inferenceModel(Infer(tensors).eval(), make_options(options, False))
    if given.executable:
        executor.loadExecutable(given.executable)
    packs = Packs("test", options["infer_inputs"])
    scale = dict(options["unscale"])
    if not os.path.samefile(given.weights, path("weights.safetensors")):
        scale["calibration"] = None  # it was fitted to this folder's own weights
    out = given.out or "predictions.csv"
    with open(out, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["graph_id"] + options["columns"])
        for number in range(len(packs)):
            outputs = executor(*packs.together([number], [1.0])).double().numpy()
            ids = packs.graph_id[number]
            for identity, row in zip(ids, physical(outputs, scale, packs, number)):
                if identity >= 0:
                    writer.writerow([int(identity)] + [repr(float(value)) for value in row])
    print(json.dumps({"wrote": out, "packs": len(packs)}))


def physical(outputs, scale, packs, number):
    """Values in their units, or probabilities, of what the network gives for a pack."""
    kind = scale.get("kind", "regression")
    if kind == "regression":
        values = np.array(scale["mean"]) + np.array(scale["std"]) * outputs
        if "per_atom" in scale:
            atoms = np.array(scale["per_atom"])[packs.arrays["z"][number]]
            values += np.bincount(packs.arrays["batch"][number], atoms, len(outputs))[:, None]
        return values
    fitted = scale.get("calibration") or [{"slope": 1.0, "intercept": 0.0}]
    logits = outputs * np.array([one["slope"] for one in fitted])
    if kind == "multiclass":
        raised = np.exp(logits - logits.max(1, keepdims=True))
        return raised / raised.sum(1, keepdims=True)
    logits = logits + np.array([one["intercept"] for one in fitted])
    return 0.5 + 0.5 * np.tanh(0.5 * logits)


def first_call(given, options, tensors):
    """An executor, its inputs, and the labels in them."""
    if given.inference:
        from model import Infer

        executor = poptorch.inferenceModel(
            Infer(tensors).eval(), make_options(options, False, offline(given))
        )
        packs = Packs("test", options["infer_inputs"])
        return executor, packs.together([0], [1.0]), int(packs.labels[0])
    from model import Train

    model = Train(tensors).train()
    optimiser = make_optimiser(options, model)
    executor = poptorch.trainingModel(model, make_options(options, True, offline(given)), optimiser)
    packs = Packs("train", options["train_inputs"])
    steps, size = per_call(options)
    order = np.arange(steps * size) % len(packs)
    chosen, weights, labels = next(calls(options, packs, order))
    return executor, packs.together(chosen, weights), int(labels.sum())


def offline(given):
    return given.ipu_version if given.what == "compile" else None


def bench(given, options, tensors):
    executor, inputs, labels = first_call(given, options, tensors)
    if given.executable:
        executor.loadExecutable(given.executable)
    executor(*inputs)
    times = []
    for _ in range(given.steps or 20):
        began = time.perf_counter()
        executor(*inputs)
        times.append(time.perf_counter() - began)
    middle = sorted(times)[len(times) // 2]
    print(
        json.dumps(
            {
                "graphs_per_s": labels / middle,
                "call_ms": 1e3 * middle,
                "device_iterations": 1 if given.inference else options["device_iterations"],
                "hardware": bool(poptorch.ipuHardwareIsAvailable()),
            }
        )
    )


def compile_only(given, options, tensors):
    executor, inputs, _ = first_call(given, options, tensors)
    out = given.out or "model.poptorch"
    executor.compileAndExport(out, *inputs, export_model=False)
    print(json.dumps({"wrote": out}))


if __name__ == "__main__":
    main()
