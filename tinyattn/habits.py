"""The names that people know from PyTorch and NumPy, and what to write here. Only errors use these tables."""

from __future__ import annotations

import functools
import inspect
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from opcode import opmap
from types import FrameType, ModuleType, TracebackType
from typing import Any, ParamSpec, TypeVar

from numpy.exceptions import AxisError

from .arguments import told

P = ParamSpec("P")
R = TypeVar("R")
RAISE, ROOT = opmap["RAISE_VARARGS"], str(pathlib.Path(__file__).parent)


def _table(text: str) -> dict[str, str]:
    """{name: what it is here} of lines "name name: what it is here"."""
    rows = [line.split(": ", 1) for line in text.strip().splitlines()]
    return {name: meaning for names, meaning in rows for name in names.split()}


TENSOR = _table("""
view view_as reshape_as resize unflatten contiguous: write t.reshape(shape); -1 stands for what is left
permute: write t.transpose((0, 2, 1)), with all axes in their new order
unsqueeze: write ta.expand_dims(t, axis), or t[None]
numel nelement: write t.size
dim ndimension: write t.ndim
t mt adjoint H mH: write t.T for a matrix, t.mT for the last two axes
movedim moveaxis: write t.transpose(axes), or t.swapaxes(i, j)
expand expand_as: write ta.broadcast_to(t, shape)
matmul mm bmm mv inner: write t @ u
add sub subtract mul multiply div divide true_divide neg negative: write t + u, t - u, t * u, t / u, -t
pow power square: write t ** 2
exp2 rsqrt reciprocal: write 2.0 ** t, t ** -0.5, 1 / t
norm: write ta.sqrt((t * t).sum())
cat concat: write ta.concatenate([t, u], axis)
stack: write ta.stack([t, u], axis)
chunk split: write ta.split(t, sections, axis)
gather index_select take take_along_axis select narrow: write t[index], with index arrays as in NumPy
masked_select: write t[mask]
argmax argmin argsort: write np.argmax(t, axis), which needs no gradient; so for argmin and argsort
sort topk: write t[np.argsort(t)]
clamp: write t.clip(low, high)
clone copy deepcopy: write +t, the same values as a new node of the graph; or copy.deepcopy(t), a leaf of its own
requires_grad_: write t.requires_grad = True, or ta.Tensor(data, requires_grad=True)
is_leaf grad_fn: print(t) says "leaf", or which op it is from; ta.draw_graph(t) shows the graph
zero_grad zero_: write t.grad = None, or optimizer.zero_grad()
detach_: write t.detach()
tolist: write t.numpy().tolist()
cpu cuda to device type: there is only the CPU, and nothing to move; for the dtype write t.astype(np.float32)
float double half int long bool type_as: write t.astype(np.float32), or np.float64; integers have no gradient
values array: write t.numpy() for a copy, t.data for the array to write to
register_hook: write t.retain_grad() before backward(), or ta.gradients(output) for all of them
fill_ copy_ uniform_ normal_ index_fill_: write t.data[...] = values, before the tensor is used
any all isnan isfinite: write np.any(t.numpy()), so for all, isnan, isfinite
""")

TOP = _table("""
tensor as_tensor asarray array from_numpy FloatTensor DoubleTensor: write ta.Tensor(data)
zeros ones empty full arange linspace eye zeros_like ones_like full_like: write ta.Tensor(np.zeros(shape)): NumPy fills
randn rand randint randperm normal bernoulli multinomial: write ta.Tensor(np.random.default_rng(0).normal(size=shape))
manual_seed seed random: write rng = np.random.default_rng(0), and hand it over: rng=rng
cat concat hstack vstack: write ta.concatenate([x, y], axis)
unsqueeze: write ta.expand_dims(x, axis), or x[None]
view flatten: write ta.reshape(x, shape); -1 stands for what is left
permute movedim moveaxis: write ta.transpose(x, axes), with all axes in their new order
numel size shape ndim: write x.size, x.shape, x.ndim
chunk: write ta.split(x, sections, axis)
mm bmm mv inner addmm: write x @ y
tensordot bilinear: write ta.einsum("i,j->ij", x, y)
mul div sub neg pow rsqrt: write x * y, x / y, x - y, -x, x ** 2
norm: write ta.sqrt((x * x).sum())
clamp: write ta.clip(x, low, high)
silu swish: write x * ta.sigmoid(x)
mse_loss l1_loss: write ((x - y) ** 2).mean(), or ta.abs(x - y).mean()
nll_loss CrossEntropyLoss binary_cross_entropy: write ta.cross_entropy(logits, targets), which takes the logits
one_hot: write np.eye(count)[ids]
tril triu: write ta.causal_mask(n), or np.tril(array)
Parameter: write ta.Tensor(data, requires_grad=True)
float16 float32 float64 int32 int64 long bool dtype: write np.float32, and so on: dtypes are NumPy's
device cuda compile jit set_default_dtype set_default_device: there is only the CPU; dtypes are NumPy's
inference_mode set_grad_enabled enable_grad: write with ta.no_grad(): …
autograd: write ta.grad(output, inputs), or output.backward()
jacobian hessian vjp jvp vmap value_and_grad: write ta.grad(output, inputs, create_graph=True), for each output
F: the functions of torch.nn.functional are here, as ta.softmax
is_tensor: write isinstance(x, ta.Tensor)
sdpa dot_product_attention multi_head_attention: write ta.scaled_dot_product_attention(Q, K, V, mask)
""")

NN = _table("""
Sequential: write a Module whose forward calls one layer after the other: for layer in self.layers: x = layer(x)
ModuleList ModuleDict ParameterList ParameterDict: write a plain list or dict: what is in it is found
Parameter: write ta.Tensor(data, requires_grad=True), as an attribute of the Module
MultiheadAttention Attention SelfAttention CrossAttention: write ta.nn.MultiHeadAttention(d_model, num_heads)
TransformerEncoderLayer TransformerDecoderLayer Transformer: write ta.nn.TransformerBlock(d_model, num_heads)
TransformerEncoder TransformerDecoder: write a list of ta.nn.TransformerBlock
ReLU GELU Sigmoid Tanh Softmax LogSoftmax SiLU: activations are functions: ta.relu, ta.gelu, ta.softmax, …
CrossEntropyLoss NLLLoss BCELoss BCEWithLogitsLoss: losses are functions: ta.cross_entropy(logits, targets)
MSELoss L1Loss: losses are functions: write ((x - y) ** 2).mean()
LSTM LSTMCell GRUCell RNNCell: ta.nn.RNN and ta.nn.GRU are here
BatchNorm1d BatchNorm2d GroupNorm InstanceNorm1d: ta.nn.LayerNorm and ta.nn.RMSNorm are here
Conv1d Conv2d MaxPool2d: there are no convolutions here: a patch is a row of a matrix for ta.nn.Linear
Identity Flatten: write a function, lambda x: x
PositionalEncoding PositionalEmbedding: write ta.nn.LearnedPositions, or ta.nn.sinusoidal_positions(n, d_model)
functional: the functions of torch.nn.functional are in ta, as ta.softmax
init: layers set their initial values as PyTorch does; write layer.weight.data = values for others
utils clip_grad_norm_ clip_grad_norm: write ta.optim.clip_grad_norm(params, max_norm)
MLP: write ta.nn.FeedForward(d_model, d_ff)
""")

OPTIM = _table("""
RMSprop Adagrad Adadelta LBFGS Adamax NAdam RAdam: ta.optim.SGD, Adam and AdamW are here
lr_scheduler: set optimizer.lr between steps; ta.optim.warmup_cosine(step, total) gives a factor
clip_grad_norm_ clip_grad_value_: write ta.optim.clip_grad_norm(params, max_norm)
""")

MODULE = _table("""
to cuda cpu float double half type: there is only the CPU; for the dtype write module.astype(np.float32)
children named_modules named_children apply: write for part in module.modules(): …
register_buffer register_parameter add_module register_module: set an attribute: it is found by itself
requires_grad_: write for p in module.parameters(): p.requires_grad = False
get_parameter: write dict(module.named_parameters())[name]
weights: write module.weight, or module.parameters()
save load: write ta.save(module, path), and module.load_state_dict(ta.load(path))
fit compile predict summary: there is no trainer here: backward(), optimizer.step(), zero_grad(); print(module) lists it
""")

ARGUMENTS = _table("""
dim dims: is axis= here
keepdim: is keepdims= here
is_causal: is mask=ta.causal_mask(n) here, or causal=True in ta.efficient
causal: is mask=ta.causal_mask(n) here
attn_mask attention_mask src_mask tgt_mask: is mask= here, where True means: may attend
key_padding_mask: is mask=ta.padding_mask(lengths, m) here, where True means: may attend
need_weights average_attn_weights return_attn output_attentions: is return_weights=True here: one map for each head
dropout_p: is dropout= of the layer here
query key value q k v memory encoder_hidden_states: is not needed: mha(x) is self, mha(x, context) cross attention
embed_dim hidden_size dim_model n_embd: is d_model= here
nhead n_head n_heads heads num_attention_heads: is num_heads= here
dim_feedforward hidden_dim: is d_ff= here
batch_first: is not needed: the batch always comes first
dtype device: is not needed: write x.astype(np.float32) for another dtype; there is only the CPU
inplace out: is not possible: no tensor is changed in place
correction ddof unbiased: is not needed: the variance divides by N
normalized_shape: is not needed: it is always the last axis
learning_rate: is lr= here
reduction size_average: is not needed: it is always the mean
seed generator random_state: is rng= here, a seed or a generator
input other tensor tensors: is not needed: tensors come first, without a name
past_key_values past_key_value kv_cache use_cache: is cache=ta.nn.KVCache() here
allow_unused materialize_grads: is not needed here
""")


CALLS = {
    "MultiHeadAttention": "mha(x) is self attention, mha(x, context) cross attention: keys and values come from one "
    "place, and a mask is given as mask="
}


def no_attribute(place: str, name: str, own: Iterable[str], table: dict[str, str]) -> AttributeError:
    """The error for a name that is not there: what it is here, or what was probably meant."""
    text = f"{place} has no {name!r}"
    if name.startswith("_"):
        return AttributeError(text)
    if name in table:
        return AttributeError(f"{text}: {table[name]}")
    if name.endswith("_") and place == "a Tensor":
        return AttributeError(f"{text}: no tensor is changed in place. Write t = t + u, or t.data[...] = values")
    elsewhere = [f"{other}.{name}" for other in _places() if name in _names(other)]
    if elsewhere:
        return AttributeError(f"{text}: it is {elsewhere[0]}")
    import difflib

    public = {n.lower(): n for n in own if not n.startswith("_")}
    if near := difflib.get_close_matches(name.lower().replace("_", ""), public, 2, 0.75):
        return AttributeError(f"{text}. Did you mean {' or '.join(public[n] for n in near)}?")
    if near := difflib.get_close_matches(name, table, 1, 0.75):
        return AttributeError(f"{text}. Did you mean {near[0]}? Here {table[near[0]]}")
    numpy = sys.modules["numpy"]
    if callable(getattr(numpy, name, None)):
        return AttributeError(f"{text}: np.{name} takes arrays, t.numpy(), and gives no gradient")
    return AttributeError(text)


class Room(ModuleType):
    """A module that is called like a function by mistake: the error names its functions."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        place = self.__name__.replace("tinyattn", "ta")
        own = place if place in _places() else "ta"
        found = [f"{own}.{name}" for name in getattr(self, "__all__", [])][:8]
        raise TypeError(
            f"{place} is a module, no function. Did you mean {' or '.join(found) or 'one of its functions'}?"
        )


def _places() -> dict[str, Any]:
    return {
        "ta": sys.modules.get("tinyattn"),
        "ta.nn": sys.modules.get("tinyattn.nn"),
        "ta.optim": sys.modules.get("tinyattn.optim"),
        "ta.efficient": sys.modules.get("tinyattn.efficient"),
        "ta.interop": sys.modules.get("tinyattn.interop"),
        "t": getattr(sys.modules.get("tinyattn"), "Tensor", None),
    }


def _names(place: str) -> set[str]:
    """The public names in one of the places, without modules."""
    space = _places()[place]
    names = {n: inspect.getattr_static(space, n, None) for n in dir(space) if not n.startswith("_")}
    return {n for n, value in names.items() if not inspect.ismodule(value)}


def advice(function: Callable[..., Any], names: Iterable[str]) -> str:
    """For argument names that a function does not have: what to write here; "" if nothing is known."""
    known = inspect.signature(function).parameters
    found = {name: ARGUMENTS.get(name, "") for name in names if name not in known}
    for name, meaning in found.items():
        import difflib

        near = difflib.get_close_matches(name, known, 1, 0.6)
        found[name] = meaning or (f"is {near[0]}= here" if near else "")
    return "; ".join(f"{name}= {meaning}" for name, meaning in found.items() if meaning)


def explained(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function. If it is called with an argument that it does not have, or with one of which Python
    or NumPy complain, the error explains it."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
            if isinstance(error, TypeError):
                explain(error, function, kwargs)
            if function.__module__.startswith(__package__) and _raw(error):
                given = [told(x) for x in args] + [f"{name}={told(x)}" for name, x in kwargs.items()]
                raise kind(error)(f"ta.{function.__name__} of {', '.join(given)}: {error}") from error
            raise

    return call


def kind(error: Exception) -> type[Exception]:
    """The kind of error that we raise for one of Python or NumPy: ValueError, TypeError or IndexError."""
    if isinstance(error, AttributeError):
        return TypeError
    return next((k for k in (AxisError, IndexError, ValueError, TypeError) if isinstance(error, k)), ValueError)


def _raw(error: Exception) -> bool:
    """Whether Python or NumPy raised it in the body of a function, in their own words. Not if a `raise` of ours did,
    or a function that the caller gave."""
    step = error.__traceback__
    if step is None or step.tb_next is None:  # at the call
        return False
    frames = [(frame.f_code, at) for frame, at in _frames(step)]
    if any(not code.co_filename.startswith(ROOT) and "numpy" not in code.co_filename for code, _ in frames):
        return False
    code, at = frames[-1]
    return code.co_code[at] != RAISE or not code.co_filename.startswith(ROOT)


def _frames(step: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while step:
        yield step.tb_frame, step.tb_lasti
        step = step.tb_next


def explain(error: TypeError, function: Callable[..., Any], names: Iterable[str], more: str = "") -> None:
    """Add to an error what was meant, if the call of the function raised it, and not its body."""
    at_the_call = error.__traceback__ is not None and error.__traceback__.tb_next is None
    text = (advice(function, names) or more) if at_the_call else ""
    error.args = (f"{error}. {text}",) if text else error.args
