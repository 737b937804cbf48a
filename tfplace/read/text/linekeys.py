"""Which field a line of canonical text sets, for many lines at once.

Canonical text (as `str(message)` writes it) has one `key: value`, `key {` or `}` a line, two more spaces
for every level. The key of a line is found by looking at a few of its bytes and then comparing all of
them; the meaning of a key follows from the message that holds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tfplace.read.binary.content import Ints
from tfplace.read.text.kinds import INT, MESSAGE, Field, Kind, kinds_of

Words = npt.NDArray[np.uint64]

NOT_A_KEY = 0
_FIRST_BYTES = np.uint64(0xFFFFFFFFFF)  # every key has five: `ptr: `
_TABLE_BITS = 10
# largest magnitude of negative and of positive numbers, by google.protobuf.descriptor.FieldDescriptor.TYPE_*
_RANGE = {
    3: (1 << 63, (1 << 63) - 1),
    4: (0, (1 << 64) - 1),
    5: (1 << 31, (1 << 31) - 1),
    13: (0, (1 << 32) - 1),
}


class LineKeys:
    """The keys of a message type and of all types below it.

    Attributes:
        types: Names of the message types; their places are type numbers, 0 for the root.
        fields: [type, key] -> field number of this table, 0 where the type has no such key.
        code: (type name, field name) -> field number of this table.
        literal: Field -> INT, STRING ..., -1 for field 0.
        child: Field -> type number of a message field.
        order: Field -> the number in the .proto file, in which order text has them.
        repeated: Field -> whether it may come again.
        lowest: Field -> magnitude of the most negative integer.
        highest: Field -> the most positive integer.
        key_size: Key -> its length, with the `: ` or ` {`.
    """

    def __init__(self, root: Any) -> None:
        known: dict[str, Kind] = {}
        kinds_of(root, known)
        kinds = sorted(known.values(), key=lambda kind: kind is not known[root.full_name])
        self.types = [kind.name for kind in kinds]
        members = [(number, member) for number, kind in enumerate(kinds) for member in kind.fields.values()]
        texts = sorted({_key_text(member) for _, member in members})
        numbers = {text: number for number, text in enumerate(texts, start=1)}
        self.fields = np.zeros((len(kinds), len(texts) + 1), np.int16)
        self.code: dict[tuple[str, str], int] = {}
        self.literal = np.full(len(members) + 1, -1, np.int8)
        self.child, self.order = np.zeros(len(members) + 1, np.int64), np.zeros(len(members) + 1, np.int64)
        self.repeated = np.zeros(len(members) + 1, bool)
        self.lowest, self.highest = np.zeros(len(members) + 1, np.uint64), np.zeros(len(members) + 1, np.uint64)
        for code, (number, member) in enumerate(members, start=1):
            self.fields[number, numbers[_key_text(member)]] = code
            self.code[kinds[number].name, member.attr] = code
            self.literal[code] = member.literal
            self.order[code], self.repeated[code] = member.descriptor.number, member.number < 0
            if member.literal == MESSAGE:
                self.child[code] = kinds.index(member.inner)
            if member.literal == INT:
                self.lowest[code], self.highest[code] = _RANGE[member.descriptor.type]
        self._prepare([text.encode() for text in texts])

    def _prepare(self, texts: list[bytes]) -> None:
        """Make the tables by which keys are found: a hash of five bytes, then single bytes that tell them apart."""
        self.key_size = np.array([0, *map(len, texts)])
        count = -(-int(self.key_size.max()) // 8)
        self.mask, self.word = (np.zeros((count, len(texts) + 1), np.uint64) for _ in range(2))
        for key, text in enumerate(texts, start=1):
            for place in range(count):
                part = text[8 * place : 8 * place + 8]
                self.word[place, key] = int.from_bytes(part, "little")
                self.mask[place, key] = (1 << 8 * len(part)) - 1
        groups: dict[int, list[int]] = {}
        for key, text in enumerate(texts, start=1):
            groups.setdefault(int.from_bytes(text[:5], "little"), []).append(key)
        self.factor, hashes = _perfect_hash(list(groups))
        # states: the keys themselves, then one for every choice between several
        self.look_at: list[int] = [0] * (len(texts) + 1)
        self.next: list[dict[int, int]] = [{} for _ in range(len(texts) + 1)]
        self.first = np.zeros(1 << _TABLE_BITS, np.int64)
        for hashed, keys in zip(hashes, groups.values(), strict=True):
            self.first[hashed] = self._choice(keys, texts)
        self.is_choice = np.arange(len(self.next)) > len(texts)
        self.offset = np.array(self.look_at)
        self.follow = np.zeros((len(self.next), 256), np.int64)
        for state, choices in enumerate(self.next):
            for byte, then in choices.items():
                self.follow[state, byte] = then

    def _choice(self, keys: list[int], texts: list[bytes]) -> int:
        """Return the state that tells these keys apart."""
        if len(keys) == 1:
            return keys[0]
        shortest = min(len(texts[key - 1]) for key in keys)
        offset = max(range(shortest), key=lambda at: len({texts[key - 1][at] for key in keys}))
        state = len(self.next)
        self.look_at.append(offset)
        self.next.append({})
        for byte in sorted({texts[key - 1][offset] for key in keys}):
            self.next[state][byte] = self._choice([key for key in keys if texts[key - 1][offset] == byte], texts)
        return state

    def find(self, data: npt.NDArray[np.uint8], words: Words, at: Ints) -> Ints:
        """Return the keys at these places, NOT_A_KEY where there is none.

        Args:
            data: The text.
            words: The 8 bytes from every position on; 40 or more follow the last key.
            at: int64[N].
        """
        head = words[at]
        key: Ints = self.first[(((head & _FIRST_BYTES) * self.factor) >> (64 - _TABLE_BITS)).view(np.int64)]
        open_ = np.flatnonzero(self.is_choice[key])
        while open_.size:
            state = key[open_]
            key[open_] = self.follow[state, data[at[open_] + self.offset[state]]]
            open_ = open_[self.is_choice[key[open_]]]
        wrong = (head & self.mask[0, key]) != self.word[0, key]
        for place in range(1, len(self.mask)):
            rest = np.flatnonzero(self.key_size[key] > 8 * place)
            kept = key[rest]
            wrong[rest] |= (words[at[rest] + 8 * place] & self.mask[place, kept]) != self.word[place, kept]
        key[wrong] = NOT_A_KEY
        return key


def _key_text(member: Field) -> str:
    return member.attr + (" {" if member.literal == MESSAGE else ": ")


def _perfect_hash(values: list[int]) -> tuple[np.uint64, list[int]]:
    """Return a factor whose products with the values differ in their highest bits, and those bits."""
    factor = 0x9E3779B97F4A7C15
    while True:
        hashes = [((value * factor) & 0xFFFFFFFFFFFFFFFF) >> (64 - _TABLE_BITS) for value in values]
        if len(set(hashes)) == len(hashes):
            return np.uint64(factor), hashes
        factor = (factor * 0x2545F4914F6CDD1D | 1) & 0xFFFFFFFFFFFFFFFF
