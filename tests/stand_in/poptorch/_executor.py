"""`PoplarExecutor`: a wrapped model, compiled at its first call."""

from __future__ import annotations

import logging
import weakref

import torch

from . import _files, _holder, _host, enums, optim
from ._arguments import Signature
from ._errors import Error
from ._program import Program
from ._steps import Settings
from ._values import expect
from .options import Options

LOGGER = logging.getLogger("poptorch")


class PoplarExecutor:
    """What trainingModel and inferenceModel return."""

    def __init__(self, model, options, training, poptorch_version, optimizer=None, user_model=None):
        self._user_model = model if user_model is None else user_model
        self._options = _options_for(options, training)
        self._training = training
        self._version = poptorch_version
        self._signature = Signature(self._user_model.forward)
        self._program = None
        self._inputs = None
        self._dirty = False  # the device has newer weights than the host
        self._optimizer = None
        if training:
            parameters = self._user_model.parameters()
            self.setOptimizer(optim.SGD(parameters, lr=0.01) if optimizer is None else optimizer)
            _host.wrap(self._user_model, _pull(self))

    def __getattr__(self, attr):
        if attr.startswith("__") or "_user_model" not in self.__dict__:
            raise AttributeError(attr)
        return getattr(self._user_model, attr)

    @property
    def model(self):
        return self._user_model

    @property
    def options(self):
        return self._options

    def __call__(self, *args, **kwargs):
        self._check_online("run a model")
        given = self._signature.order(args, kwargs)
        if not self.isCompiled():
            self._compile(given)
        if not self.isAttachedToDevice():
            self.attachToDevice()
        result = self._program.call(given)
        self._dirty = self._training
        return result

    def compile(self, *args, **kwargs):
        if self.isCompiled():
            LOGGER.warning("compile() ignored: the model is already compiled")
        else:
            self._compile(self._signature.order(args, kwargs))

    def _compile(self, given):
        connection = self._options.connection_type
        if connection == enums.ConnectionType.Always:
            _holder.check_free(self)
        if self._training and not _host.is_wrapped(self._user_model):
            _host.wrap(self._user_model, _pull(self))
        self._program = Program(
            self._user_model, self._signature, given, self._options, self._optimizer
        )
        self._inputs = given
        if connection != enums.ConnectionType.Never:
            try:
                _holder.attach(self)
            except Error:
                self._program = None
                raise

    def setOptimizer(self, optimizer):
        """Read the numbers of an optimiser; later changes of the object wait for another call."""
        if not self._training:
            raise Error("An inferenceModel has no optimizer")
        ours = isinstance(optimizer, optim.Optimizer)
        settings = Settings(optimizer)
        if self.isCompiled():
            self._program.set_optimizer(settings)
            if optimizer is not self._optimizer and ours and optimizer.has_state():
                self._program.set_optimizer_state(optimizer._ipu_state)
        self._optimizer, self._settings = optimizer, settings
        if ours:
            reference = weakref.ref(self)
            optimizer._read_device = lambda: _state_of(reference(), optimizer)

    def load_state_dict(self, state_dict, strict=True):
        result = self._user_model.load_state_dict(state_dict, strict)
        if self.isAttachedToDevice():
            self.copyWeightsToDevice()
        return result

    def _host_weights(self):
        """The host's parameters and buffers, read without a pull."""
        self._dirty = False
        model = self._user_model
        return {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def copyWeightsToHost(self):
        self._check_compiled()
        host = self._host_weights()
        with torch.no_grad():
            for name, tensor in self._program.device.weights().items():
                host[name].copy_(tensor.detach())

    def copyWeightsToHostIfNeeded(self):
        if not self._dirty:
            return False
        self.copyWeightsToHost()
        return True

    def copyWeightsToDevice(self):
        self._check_compiled()
        self._program.device.write(self._host_weights())

    def copyNamedBuffersToDevice(self):
        self._check_compiled()
        device = self._program.device
        names = self._options._values.get("updatable_named_buffers", [])
        now, dirty = device.snapshot(), self._dirty
        host = self._host_weights()
        device.write({**now, **{name: host[name] for name in names}})
        self._dirty = dirty

    def compileAndExport(self, filename, *args, export_model=True, **kwargs):
        self.compile(*args, **kwargs)
        self.save(filename, export_model)

    def save(self, filename, export_model=True, save_rng_state=True):
        self._check_compiled()
        content = {"inputs": self._inputs, "options": self._options, "training": self._training}
        if export_model:
            content.update(model=self._user_model, optimizer=self._optimizer)
        if save_rng_state:
            content["rng_state"] = self.rng_state
        _files.write(filename, self._version, content)

    def loadExecutable(self, filename):
        content = _files.read(filename, self._version)
        if content["training"] != self._training:
            raise Error(f"{filename} was compiled from the other kind of model")
        self._compile(content["inputs"])
        if "rng_state" in content:
            self.rng_state = content["rng_state"]

    @property
    def rng_state(self):
        self._check_compiled()
        return list(self._program.rng_state)

    @rng_state.setter
    def rng_state(self, state):
        self._check_compiled()
        self._program.rng_state = list(state)

    def isCompiled(self):
        return self._program is not None

    def _check_compiled(self):
        if not self.isCompiled():
            raise Error("Model has not been compiled or has been destroyed.")

    def _check_online(self, purpose):
        expect(
            self._options.connection_type != enums.ConnectionType.Never,
            f"Trying to {purpose} on an offline device (ConnectionType.Never)",
        )

    def isAttachedToDevice(self):
        return self.isCompiled() and _holder.holder() is self

    def attachToDevice(self):
        """Take the device, with the host's weights: those of a trainingModel of the same module."""
        self._check_compiled()
        self._check_online("attach")
        if self.isAttachedToDevice():
            raise Error("Device is already attached")
        _holder.attach(self)
        self.copyWeightsToDevice()

    def detachFromDevice(self):
        self._check_compiled()
        if not self.isAttachedToDevice():
            raise Error("Device is not attached")
        self.copyWeightsToHostIfNeeded()
        _holder.release(self)

    def destroy(self):
        """Give up the executable and the device; the module is the user's own again."""
        if not self.isCompiled():
            return
        if self._training:
            self.copyWeightsToHostIfNeeded()
            self._optimizer.state_dict()  # reads the device's a last time
            _host.unwrap(self._user_model)
        _holder.release(self)
        self._program = None


def _options_for(given, training):
    """The options of an executor: a frozen copy, with the output mode decided."""
    if given is not None and not isinstance(given, Options):
        raise Error(f"'options' is a {type(given)} (expected poptorch.Options)")
    given = Options() if given is None else given
    given._check()
    given._freeze()
    options = given.clone()
    if not training and options.Training.gradient_accumulation != 1:
        raise Error(
            "Training.gradientAccumulation must be 1 for an inferenceModel; use deviceIterations "
            "for more batches a call"
        )
    if options.defaultOutputMode():
        options.outputMode(enums.OutputMode.Final if training else enums.OutputMode.All)
    options._freeze()
    return options


def _pull(executor):
    """A function that pulls newer weights from the device while the executor lives."""
    reference = weakref.ref(executor)

    def pull():
        alive = reference()
        return alive is not None and alive.copyWeightsToHostIfNeeded()

    return pull


def _state_of(executor, optimizer):
    """The state of the executor's optimiser, if it still is this one and is compiled."""
    if executor is None or not executor.isCompiled() or executor._optimizer is not optimizer:
        return optimizer._ipu_state
    return executor._program.optimizer_state()
