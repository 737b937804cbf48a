"""Text of a RunMetadata, StepStats or GraphDef: the fast way where the text is canonical, else the complete one."""

from __future__ import annotations

import re
from collections import Counter

from tfplace.read.binary.columns import read_blocks
from tfplace.read.decoded import Decoded, Progress
from tfplace.read.protos import message_class
from tfplace.read.text.canonical import read_canonical
from tfplace.read.text.gate import NotCanonical
from tfplace.read.text.graphtext import GraphText
from tfplace.read.text.lenient import parse_lenient
from tfplace.read.text.tokenizer import parse_text

_LINE = re.compile(rb"([A-Za-z_]\w*)(?: \{|: [^\n]*)\n|(?:#[^\n]*)?\n")


def read_text(data: bytes, kind: str, progress: Progress | None = None) -> Decoded:
    """Read text.

    Args:
        data: UTF-8 without a byte order mark.
        kind: RunMetadata, StepStats or GraphDef.
        progress: Called with bytes done and bytes in all.

    Raises:
        TextError: It is not legal text of that kind.
    """
    try:
        return read_plain(data, kind, progress)
    except NotCanonical:
        return read_any(data, kind, progress)


def read_any(data: bytes, kind: str, progress: Progress | None = None) -> Decoded:
    """Read any legal text.

    Raises:
        TextError: It is not legal text of that kind.
    """
    result = parse_text(data, message_class(kind)(), progress)
    cut = f"line {result.cut_line:,}" if result.cut_line else ""
    decoded = Decoded(kind, result.message, mangled=result.mangled, cut=cut)
    if kind == "StepStats" or (kind == "RunMetadata" and result.message.HasField("step_stats")):
        decoded.step_stats, mangled = read_blocks(result.data, result.blocks)
        decoded.mangled += mangled
    return decoded


def read_plain(data: bytes, kind: str, progress: Progress | None = None) -> Decoded:
    """Read canonical text.

    Raises:
        NotCanonical: The text is not as protobuf writes it.
    """
    if not data.endswith(b"\n"):
        data += b"\n"

    def report(done: int) -> None:
        if progress:
            progress(done, len(data))

    if kind == "StepStats":
        begin = _skip_comments(data)
        columns, mangled = read_canonical(data, [(begin, len(data))], 0, report)
        return Decoded(kind, message_class(kind)(), columns, mangled)
    graphs, spans = GraphText(), []
    sections = _sections(data)
    counts = Counter(name for name, *_ in sections)
    if any(count > 1 and graphs.is_single(kind, name.decode()) for name, count in counts.items()):
        raise NotCanonical
    for name, begin, end in sections:
        if name == b"step_stats" and kind == "RunMetadata":
            spans.append((data.index(b"\n", begin) + 1, end - 2))
        else:
            graphs.add(data, begin, end, kind)
            report(end)
    message, mangled = parse_lenient(kind, graphs.wire())
    decoded = Decoded(kind, message, mangled=mangled + graphs.mangled)
    if spans:
        decoded.step_stats, mangled = read_canonical(data, spans, 2, report)
        decoded.mangled += mangled
    return decoded


def _sections(data: bytes) -> list[tuple[bytes, int, int]]:
    """Return name, begin and end of the outermost fields; comments may stand between them.

    Raises:
        NotCanonical: Something else is there.
    """
    sections = []
    place = 0
    while place < len(data):
        found = _LINE.match(data, place)
        if not found:
            raise NotCanonical
        end = found.end()
        if data[end - 2 : end - 1] == b"{" and found[1]:
            end = data.find(b"\n}\n", end - 1) + 3
            if end < found.end():
                raise NotCanonical
        if found[1]:
            sections.append((found[1], place, end))
        place = end
    return sections


def _skip_comments(data: bytes) -> int:
    place = 0
    while found := _LINE.match(data, place):
        if found[1]:
            break
        place = found.end()
    return place
