"""The change to make in code, per rule: TF2 / Keras 3, and TF1. docs/rules.md says the same at more length."""

from __future__ import annotations

from collections.abc import Iterable

from tfplace.analyze.analysis import Analysis
from tfplace.diagnose.words import fix
from tfplace.units import format_bytes


def variable_on_cpu(analysis: Analysis) -> str:
    """Fix of variable-on-cpu."""
    return fix(
        analysis,
        'create the variables outside `with tf.device("/CPU:0")` (with several GPUs inside `strategy.scope()`); load a '
        "SavedModel where the GPU is visible. Keep only look-up tables on the CPU.",
        'take `with tf.device("/cpu:0")` away from around `tf.get_variable`, or give `tf.device` a function that puts '
        "VariableV2 on the GPU.",
    )


def table_on_cpu(analysis: Analysis, table_bytes: int | None, *, dense: bool) -> str:
    """Fix of table-on-cpu; says whether the table fits the device where both sizes are known."""
    memory = analysis.accelerators["memory_bytes"].dropna()
    fits = ""
    if table_bytes is not None and len(memory):
        needed, there = 3 * table_bytes, int(memory.min())
        verb = "fit" if needed < there else "do not fit"
        fits = f" Table and two slots, {format_bytes(needed)}, {verb} in the {format_bytes(there)} of the GPU."
    sparse = " While it stays on the CPU, use an optimizer that updates only the rows used (LazyAdam, SGD)." * dense
    return fix(
        analysis,
        "if the table and its two optimizer slots fit in the GPU's free memory, create it outside "
        '`tf.device("/CPU:0")`; else keep it there and look up each id once (`tf.unique` on the CPU first).'
        f"{fits}{sparse}",
        "drop the `/cpu:0` pin around `tf.get_variable` if table and slots fit; else keep it and look up each id once; "
        f"`partitioner=` spreads it over several devices.{fits}{sparse}",
    )


STRATEGY_SUM = '`strategy.reduce` sums on the CPU unless it is called under `with tf.device("/GPU:0")`.'
"""Source: tensorflow/python/distribute/distribute_lib.py (_reduce: the current device, else "/device:CPU:0")."""


def cpu_reason(analysis: Analysis, *, by_strategy: bool) -> str:
    """Fix of cpu-reason; `by_strategy`: a distribution strategy itself asked for the host."""
    return fix(
        analysis,
        f"{STRATEGY_SUM} "
        * by_strategy
        + "For state that crosses to the GPU use int64 or float32 in place of int32; take the `tf.device` request away "
        "where the program asked for the CPU; for an op without a GPU kernel see the rule ping-pong.",
    )


def colocated_to_cpu(analysis: Analysis) -> str:
    """Fix of colocated-to-cpu."""
    return fix(
        analysis,
        "move the op that holds the group out of it: another dtype, `with tf.device(None)`, or initialise the variable "
        "outside the function.",
        "build the op that holds the group with `tf.colocate_with(None, ignore_existing=True)`, and do not wrap "
        "`tf.train.init_from_checkpoint` or initialisers in `tf.device('/cpu:0')`.",
    )


def update_on_cpu(analysis: Analysis) -> str:
    """Fix of update-on-cpu."""
    return fix(
        analysis,
        "put the variable, and with it the optimizer's slots, on the GPU: create both outside "
        '`tf.device("/CPU:0")`. The update then runs where the gradient is.',
        'create variables and optimizer outside `tf.device("/cpu:0")`; slots follow their variable.',
    )


def request_not_honoured(analysis: Analysis) -> str:
    """Fix of request-not-honoured."""
    return fix(
        analysis,
        "give the op a type that has a GPU kernel (int64 or float32 in place of int32), use another op, or take the "
        "request away, so that the code says what happens.",
    )


def multi_gpu_parameters(analysis: Analysis) -> str:
    """Fix of multi-gpu-parameters."""
    return fix(
        analysis,
        "create the model inside `tf.distribute.MirroredStrategy().scope()`: every GPU then holds its own copy and "
        "only gradients are exchanged. Measure both ways where the GPUs have no P2P (`nvidia-smi topo -m`).",
        "give each tower its own variables, or use a local_parameter_device on a GPU; measure both ways where the GPUs "
        "have no P2P (`nvidia-smi topo -m`).",
    )


def xla_hides_placement(analysis: Analysis) -> str:
    """Fix of xla-hides-placement."""
    return fix(
        analysis,
        "trace one run with jit off: `tfplace record --no-jit` or `tfplace simulate --no-jit`, or `jit_compile=False` "
        "in `tf.function` or in Keras' `model.compile` (Keras turns it on by itself when a GPU is there). For "
        "a compiled function use int64 in place of int32 state, create its variables outside "
        '`tf.device("/CPU:0")`, and look up tables outside it.',
        "unset `TF_XLA_FLAGS` and `global_jit_level` for the traced run.",
    )


def ping_pong(analysis: Analysis, instead: str, hint: str) -> str:
    """Fix of ping-pong: `instead` names the replacement, `hint` what other TensorFlow versions do."""
    one_side = (
        "Or keep the chain on one side: put the neighbours on the CPU as well "
        '(`with tf.device("/CPU:0")`), so that one crossing remains.'
    )
    return fix(analysis, " ".join(filter(None, (hint, instead, one_side))))


def random_keys(analysis: Analysis, hint: str, num_bytes: int | None) -> str:
    """Fix of ping-pong where the host only makes the key and counter of random ops: nobody can place that elsewhere."""
    moved = "" if num_bytes is None else f", {format_bytes(num_bytes)} a step"
    leave = (
        "Leave it: it makes the key and counter of a stateless random op (Keras' Dropout, "
        f"`tf.random.stateless_uniform`){moved}, and no placement changes that; a seed on the CPU adds copies. "
        "Where the wait shows, compile the step by XLA (`jit_compile=True`; Keras does so by itself on a GPU), which "
        "draws the numbers on the GPU."
    )
    return fix(analysis, " ".join(filter(None, (hint, leave))))


def constant_copied(analysis: Analysis, *, sliced: bool) -> str:
    """Fix of constant-copied."""
    first = "take the slice under `tf.device('/CPU:0')`, so that only the part crosses; or " if sliced else ""
    return fix(
        analysis,
        f"{first}make the constant a `tf.Variable(value, trainable=False)` on the GPU: it is copied once.",
        f"{first}make it a `tf.get_variable(..., trainable=False)` on the GPU, filled once at the start.",
    )


def feed_copied(analysis: Analysis) -> str:
    """Fix of feed-copied."""
    return fix(
        analysis,
        "feed the step from a `tf.data.Dataset` whose last step is "
        '`.apply(tf.data.experimental.prefetch_to_device("/GPU:0"))`, or hand over tensors that are on the GPU '
        "already; do not pass the same numpy array again.",
        "replace `feed_dict` by a Dataset iterator, or by a StagingArea filled one step ahead.",
    )


def whole_dataset_fed(analysis: Analysis) -> str:
    """Fix of whole-dataset-fed."""
    return fix(
        analysis,
        "keep the whole set in a `tf.Variable(..., trainable=False)` on the GPU and pass only the indices; or use a "
        "`tf.data.Dataset` and pass the batch.",
        "keep the set in a non-trainable variable on the GPU and feed the indices; or feed only the batch.",
    )


def fetch_copied(analysis: Analysis) -> str:
    """Fix of fetch-copied."""
    return fix(
        analysis,
        "return only the scalars that you read from the step, and read them every N steps; keep large outputs on the "
        "GPU.",
        "fetch `train_op` (`tf.group` of the updates), not gradients or variables; fetch the loss every N steps.",
    )


def input_not_staged(analysis: Analysis) -> str:
    """Fix of input-not-staged."""
    return fix(
        analysis,
        'make `.apply(tf.data.experimental.prefetch_to_device("/GPU:0", 2))` the last transformation of the dataset '
        "(custom loops; MirroredStrategy prefetches by itself through `experimental_distribute_dataset`).",
        "use `tf.data.experimental.prefetch_to_device`, a MultiDeviceIterator, or a StagingArea filled one step ahead.",
    )


_UNPAGED = {
    "variable": (
        "weights",
        "pinning is no cure; put the variable on the GPU, and none is copied (rule variable-on-cpu).",
    ),
    "input": (
        "input",
        "let tf.data make the batch (`map`, `batch`) in place of `from_generator` or numpy arrays: its buffers can be "
        "pinned. Fewer, larger copies also help.",
    ),
    "constant": ("constants", "make each a `tf.Variable(value, trainable=False)` on the GPU (rule constant-copied)."),
    "gradient": ("gradients", "put the variable that they update on the GPU (rule update-on-cpu)."),
    "fetch": ("results", "fetch fewer of them, or less often (rule fetch-copied)."),
    "unknown": ("the rest", "what it carries is not recorded; `output_partition_graphs=True` records it."),
}
_UNPAGED_ELSE = (
    "values of ops on the CPU",
    "run both ends of the copy on the GPU (rules cpu-reason and ping-pong): TensorFlow chooses the memory itself.",
)


def pageable_copy(analysis: Analysis, categories: Iterable[str]) -> str:
    """Fix of pageable-copy, by what the copies carry; the first is the most."""
    told = list(dict.fromkeys(_UNPAGED.get(kind, _UNPAGED_ELSE) for kind in categories))
    if len(told) == 1:
        return fix(analysis, told[0][1])
    return fix(analysis, " ".join(f"{what[:1].upper()}{what[1:]}: {cure}" for what, cure in told))


_RULE_OF = {
    "variable": "see the rule variable-on-cpu",
    "input": "see the rules input-not-staged and feed-copied",
    "fetch": "see the rule fetch-copied",
    "constant": "see the rule constant-copied",
    "gradient": "see the rule update-on-cpu",
    "activation": "see the rules ping-pong and cpu-reason",
    "shape": "see the rule ping-pong",
}
_WAY = {
    "P2P": "keep producer and consumer on one GPU, or check the path with `nvidia-smi topo -m`",
    "D2D": "a copy inside one GPU is made by the ops themselves: snapshots, concatenations, assignments",
}


def exposed_copies(analysis: Analysis, category: str, direction: str) -> str:
    """Fix of exposed-copies, by what most of the time carries, and which way."""
    what = _WAY.get(direction) or _RULE_OF.get(category) or "the trace does not tell what these copies carry"
    return fix(analysis, f"most of this time goes to {direction} copies of the kind '{category}': {what}.")


def tiny_copies(analysis: Analysis) -> str:
    """Fix of tiny-copies."""
    return fix(
        analysis,
        "pack small arguments into one tensor, keep counters and conditions on the host, and do not read shapes back "
        "from the GPU in the step (use static shapes).",
    )


def prefetch_ineffective(analysis: Analysis) -> str:
    """Fix of prefetch-ineffective."""
    return fix(
        analysis,
        "make prefetch_to_device the last transformation, with a buffer of 1 to 4; let `map` and `batch` make the "
        "tensors, not from_generator (its memory is pageable); do not use it inside "
        "`distribute_datasets_from_function`.",
        "make prefetch_to_device the last transformation, with a buffer of 1 to 4; re-initialise with a new iterator.",
    )


def staging_misuse(analysis: Analysis) -> str:
    """Fix of staging-misuse."""
    return fix(
        analysis,
        "use `prefetch_to_device` in place of a StagingArea.",
        "put batch k+1 while batch k is computed: run `put` once before the loop, then `put` and the training op in "
        "the same `run` with no dependency between them, and fill it from a Dataset, not from `feed_dict`.",
    )


def gpu_gpu_through_host(analysis: Analysis) -> str:
    """Fix of gpu-gpu-through-host."""
    return fix(
        analysis,
        "check the path between the GPUs with `nvidia-smi topo -m`; reduce with NCCL "
        "(`MirroredStrategy(cross_device_ops=tf.distribute.NcclAllReduce())`), or keep producer and consumer on one "
        "GPU.",
        "check the path with `nvidia-smi topo -m`; reduce with NCCL (`tf.contrib.nccl`, `variable_update=replicated`), "
        "or keep producer and consumer on one GPU.",
    )


def transfer_in_loop(analysis: Analysis) -> str:
    """Fix of transfer-in-loop."""
    return fix(
        analysis,
        "keep counter and condition of the loop on the host and the body on the GPU, or the whole loop on one side; "
        "where the trip count is fixed, unroll.",
        "counter and condition on the host, body on the GPU, and `swap_memory=False` in `tf.while_loop` unless memory "
        "is short.",
    )


def debug_op_copies(analysis: Analysis) -> str:
    """Fix of debug-op-copies."""
    return fix(
        analysis,
        "write summaries every N steps (`tf.summary.record_if`), and take `tf.print`, asserts and `tf.py_function` out "
        "of the step once it works.",
        "run the summary op every N steps; drop `tf.Print`, `tf.Assert` and `tf.py_func` from the training graph.",
    )
