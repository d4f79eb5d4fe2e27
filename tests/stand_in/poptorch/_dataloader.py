"""`DataLoader`: batches of as many samples as one call of a model takes."""

from __future__ import annotations

import torch

from . import enums
from ._errors import Error
from ._structures import mapped
from ._values import expect
from .options import Options


class DataLoader(torch.utils.data.DataLoader):
    """Yields `combinedBatchSize` samples at a time; the asynchronous modes load as Sync does."""

    def __init__(
        self,
        options,
        dataset,
        batch_size=1,
        shuffle=None,
        num_workers=0,
        drop_last=True,
        persistent_workers=None,
        auto_distributed_partitioning=True,
        mode=enums.DataLoaderMode.Sync,
        async_options=None,
        rebatched_worker_size=None,
        batch_sampler=None,
        **kwargs,
    ):
        if not isinstance(options, Options):
            raise Error(f"'options' is a {type(options)} (expected poptorch.Options)")
        kind = isinstance(mode, enums.DataLoaderMode)
        expect(kind, f"Not a poptorch.DataLoaderMode: {mode!r}")
        synchronous = mode == enums.DataLoaderMode.Sync
        expect(not (synchronous and async_options), "async_options need an asynchronous mode")
        rebatched = mode == enums.DataLoaderMode.AsyncRebatched
        expect(rebatched or rebatched_worker_size is None, "rebatched_worker_size: AsyncRebatched")
        options._check()
        options._freeze()
        self._options_given = options
        self._batches = (
            options.device_iterations
            * options._input_groups
            * options.Training.gradient_accumulation
        )
        self._combined = None if batch_size is None else batch_size * self._batches
        self._joins = batch_sampler is not None
        if self._joins:
            kwargs["batch_sampler"] = batch_sampler
        else:
            self._check_even(dataset, drop_last)
            kwargs.update(batch_size=self._combined, shuffle=bool(shuffle), drop_last=drop_last)
        workers = num_workers > 0 if persistent_workers is None else persistent_workers
        super().__init__(dataset, num_workers=num_workers, persistent_workers=workers, **kwargs)

    def _check_even(self, dataset, drop_last):
        if drop_last or self._combined is None or not hasattr(dataset, "__len__"):
            return
        expect(
            len(dataset) % self._combined == 0,
            f"{len(dataset)} samples don't divide into steps of {self._combined}: use "
            "drop_last=True",
        )

    def __len__(self):
        whole = super().__len__()
        return whole // self._batches if self._joins else whole

    def __iter__(self):
        return self._joined(super().__iter__()) if self._joins else super().__iter__()

    def _joined(self, batches):
        """Each `_batches` successive batches as one, joined along dimension 0."""
        held = []
        for batch in batches:
            held.append(batch)
            if len(held) == self._batches:
                yield mapped(_cat, *held)
                held = []

    @property
    def combinedBatchSize(self):
        return None if self._joins else self._combined

    @property
    def options(self):
        return self._options_given

    def terminate(self):
        """Stop the workers of an asynchronous mode; there are none."""


def _cat(*values):
    return torch.cat(values) if isinstance(values[0], torch.Tensor) else values[0]
