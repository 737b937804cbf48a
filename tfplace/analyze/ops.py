"""What op types mean for placement and transfers: the one list of each class of op.

Source: the op registrations under tensorflow/core/ops (state_ops, resource_variable_ops,
training_ops, dataset_ops, data_flow_ops, lookup_ops, array_ops, logging_ops).
"""

from __future__ import annotations

import re

REF_VARIABLES = frozenset({"VariableV2", "Variable", "AutoReloadVariable"})
RESOURCE_VARIABLES = frozenset({"VarHandleOp", "_VarHandlesOp"})
TABLES = re.compile(
    r"^(Anonymous)?(Mutable)?(DenseHash|Hash|Mutable)Table(OfTensors)?(V[23])?$|^MutableHashTable|^(Anonymous)?HashTable"
)

IDENTITIES = frozenset(
    {
        "Identity",
        "IdentityN",
        "Snapshot",
        "StopGradient",
        "PreventGradient",
        "CheckNumerics",
        "Enter",
        "RefEnter",
        "Exit",
        "RefExit",
        "Switch",
        "RefSwitch",
        "Merge",
        "RefMerge",
        "NextIteration",
        "RefIdentity",
        "_Retval",
        "EnsureShape",
        "Placeholder",
        "PlaceholderWithDefault",
    }
)
"""Ops whose output is their input, bit for bit."""

SIZE_KEEPING = IDENTITIES | {"Reshape", "Squeeze", "ExpandDims", "Cast", "Bitcast", "ReadVariableOp", "Transpose"}
"""Ops whose output is the whole of their first input in another form."""

VARIABLE_READS = frozenset({"ReadVariableOp", "_ReadVariablesOp", "ReadVariableXlaSplitND"})

GATHERS = re.compile(
    r"^(Resource)?(Gather(V2|Nd)?|SparseGather)$|^EmbeddingLookup|^ResourceGather|^LookupTableFind(V2)?$"
)
"""Ops that take rows of a table: the output is a part of the first input."""

REF_WRITES = re.compile(r"^(Ref)?Assign(Add|Sub)?$|^(Sparse)?Apply[A-Z]|^Scatter(Nd)?(Add|Sub|Update|Mul|Div|Min|Max)$")
"""Writes of reference variables: they hand on the variable itself, after the change."""

ROW_REDUCERS = re.compile(r"^SparseSegment(Sum|Mean|SqrtN)")
"""Ops that gather rows and sum them."""

WRITES = re.compile(
    r"^(Ref)?Assign(Add|Sub)?$|^Assign(Add|Sub)?VariableOp$|^(Resource)?(Sparse)?Apply[A-Z]"
    r"|^(Resource)?Scatter(Nd)?(Add|Sub|Update|Mul|Div|Min|Max)$|^ResourceStridedSliceAssign$|^StridedSliceAssign$"
    r"|^CountUpTo$|^ResourceCountUpTo$|^(Destroy|Delete)ResourceOp$"
)
"""Ops that change a variable given as their first input(s)."""

UPDATES = re.compile(
    r"^(Resource)?(Sparse)?Apply[A-Z]|^Assign(Add|Sub)(VariableOp)?$|^(Resource)?Scatter(Nd)?(Add|Sub)$"
)
"""Writes that take a gradient or a delta: the update of a training step."""

VARIABLE_CHECKS = frozenset({"IsVariableInitialized", "VarIsInitializedOp", "VariableShape"})
"""Ops that touch a variable without moving its value."""

INPUTS = re.compile(
    r"^Iterator(GetNext|V2)|^IteratorGetNext|^OptionalGetValue|^(Reader|WholeFileReader)|^Queue(Dequeue|TakeMany)"
    r"|^MultiDeviceIteratorGetNext|^(Ordered)?(Map)?Unstage|^StageGet|^ReadFile$|^Decode(Jpeg|Png|Image|Raw|CSV)"
    r"|^Parse(Single)?Example|^RemoteCall$|^OneShotIterator"
)
"""Ops that hand over the next piece of input."""

DATASETS = re.compile(r"Dataset(V\d)?$|^Iterator|^MakeIterator|^(Anonymous)?(MultiDevice)?Iterator|^OptionalGetValue")
"""Ops of tf.data."""

FEEDS = frozenset({"_Arg", "_DeviceArg", "Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})
FETCHES = frozenset({"_Retval", "_DeviceRetval"})

SHAPE_OPS = frozenset(
    {
        "Shape",
        "ShapeN",
        "Size",
        "Rank",
        "BroadcastGradientArgs",
        "BroadcastArgs",
        "ConcatOffset",
        "InvertPermutation",
        "Range",
        "Fill",
        "Reshape",
        "Tile",
        "Slice",
        "StridedSlice",
        "StridedSliceGrad",
        "Pack",
        "Unpack",
        "ExpandDims",
        "Prod",
        "Sum",
        "Mean",
        "Max",
        "FloorDiv",
        "FloorMod",
        "Maximum",
        "DynamicStitch",
        "ParallelDynamicStitch",
        "Split",
        "SplitV",
        "Pad",
        "PadV2",
        "Transpose",
        "Conv2DBackpropInput",
        "Conv2DBackpropFilter",
        "Conv2DBackpropInputV2",
        "Conv2DBackpropFilterV2",
        "RandomUniform",
        "RandomStandardNormal",
        "TruncatedNormal",
    }
)
"""Ops that make or take shapes, sizes and axes as small whole numbers."""

GRADIENTS = re.compile(r"Grad(V\d)?$|Backprop(Input|Filter)?(V\d)?$|GradGrad")
GRADIENT_NAMES = re.compile(r"(^|/)gradients?(_\d+)?/|gradient_tape/|_grad/|(^|/)Gradient")

GRADIENT_SUMS = frozenset({"AddN", "Add", "AddV2", "Mul", "RealDiv", "DivNoNan", "Mean", "Sum", "Concat", "ConcatV2"})
"""What stands between a gradient and its update: sums over towers, scaling, clipping."""

SCALINGS = frozenset({"Mul", "RealDiv", "DivNoNan"})
PACKINGS = frozenset({"Concat", "ConcatV2", "Pack"})
"""Ops that put values side by side in one tensor: what is made of gradients alone is one."""

SUMS = frozenset({"AddN", "Add", "AddV2"})
"""Ops whose output is a gradient as soon as one of their inputs is."""

_DELTA_SLOTS = {
    **{"GradientDescent": 2, "ProximalGradientDescent": 4, "Momentum": 3, "KerasMomentum": 3},
    **{"Adam": 9, "AdamWithAmsgrad": 10, "AdaMax": 8, "Adadelta": 6, "RMSProp": 7, "CenteredRMSProp": 8},
    **{"Adagrad": 3, "AdagradV2": 4, "ProximalAdagrad": 5, "AdagradDA": 3},
    **{"Ftrl": 3, "FtrlV2": 3, "PowerSign": 6, "AddSign": 6},
}
"""Input of (Resource)(Sparse)Apply... that takes the gradient; a sparse update takes the row numbers in the next.

Source: tensorflow/core/ops/training_ops.cc.
"""

_APPLY = re.compile(r"^(?:Resource)?(Sparse)?Apply(\w+)$")

DEBUG_OPS = re.compile(
    r"^(Assert|Print|PrintV2|CheckNumerics\w*|PyFunc|PyFuncStateless|EagerPyFunc|.*Summary(V2)?|Write\w*Summary|"
    r"DebugNumericSummary\w*|DebugIdentity\w*|StringFormat|AudioSummaryV2)$"
)
"""Ops that look at values for people: checks, prints, summaries, Python callbacks."""

STAGE_PUTS = re.compile(r"^(Ordered)?(Map)?Stage$")
STAGE_GETS = re.compile(r"^(Ordered)?(Map)?Unstage(NoKey)?$")

XLA_OPS = re.compile(r"^_?Xla(Launch(V2)?|Run|Compile|MustCompile)|^_XlaCompile|^_XlaRun")
WHILE_OPS = frozenset({"Enter", "RefEnter", "NextIteration", "LoopCond", "Exit", "While", "StatelessWhile"})

BOOKKEEPING = frozenset({"_Send", "_HostSend", "_Recv", "_HostRecv", "_Arg", "_Retval", "NoOp", "_SOURCE", "_SINK", ""})
"""Nodes that no one placed: the runtime's own ends of edges."""


def takes_delta(op: str, slot: int) -> bool:
    """Tell whether input `slot` of an update op is its gradient or delta (or its row numbers), no hyperparameter.

    True where that is not known: slot 0 is the variable itself, and stands for an input whose number is not recorded.
    """
    match = _APPLY.match(op)
    if slot <= 0 or match is None or match[2] not in _DELTA_SLOTS:
        return True
    delta = _DELTA_SLOTS[match[2]]
    return slot == delta or (match[1] is not None and slot == delta + 1)


def is_variable(op: str) -> bool:
    """Tell whether nodes of this op are variables by themselves (a resource `_Arg` is one by its handle)."""
    return op in REF_VARIABLES or op in RESOURCE_VARIABLES


def is_table(op: str) -> bool:
    """Tell whether nodes of this op are look-up tables."""
    return bool(TABLES.match(op))
