"""Splits text at the commas of an array or object without requiring valid elements (DESIGN 3.1).

Owns the tolerant way in: strings and brackets are respected, the reader of the pieces judges everything else.
"""

from __future__ import annotations

import json
import re

WHITESPACE = " \t\r\n"
_TOKEN = re.compile(r'"(?:[^"\\]+|\\.)*("?)|[\[\]{},]', re.DOTALL)
_string = json.JSONDecoder().raw_decode


class UnsplittableError(Exception):
    """The text does not tell where one element ends and the next begins."""


def split_array(text: str) -> list[str]:
    """Split the text of an array into the texts of its elements; an empty piece between commas is an element.

    Raises:
        UnsplittableError: not closed, brackets do not match, or something follows.
    """
    return _split(text, opening="[", closing="]")


def split_object(text: str) -> list[tuple[str, str]]:
    """Split the text of an object into keys and the texts of their values.

    Raises:
        UnsplittableError: as for arrays, or a key cannot be read.
    """
    members = []
    for piece in _split(text, opening="{", closing="}"):
        member = piece.strip(WHITESPACE)
        try:
            key, end = _string(member)
        except (json.JSONDecodeError, RecursionError) as error:
            raise UnsplittableError from error
        rest = member[end:].lstrip(WHITESPACE)
        if not isinstance(key, str) or not rest.startswith(":"):
            raise UnsplittableError
        members.append((key, rest[1:].strip(WHITESPACE)))
    return members


def _split(text: str, *, opening: str, closing: str) -> list[str]:
    text = text.strip(WHITESPACE)
    if not text.startswith(opening):
        raise UnsplittableError
    pieces = []
    begin = 1
    open_brackets: list[str] = []
    for token in _TOKEN.finditer(text, 1):
        mark = token[0]
        if mark[0] == '"':
            if not token[1]:
                raise UnsplittableError  # a string that never ends swallows what separates elements
        elif mark in "[{":
            open_brackets.append("]" if mark == "[" else "}")
        elif open_brackets:
            if mark != "," and mark != open_brackets.pop():
                raise UnsplittableError
        elif mark not in (",", closing):
            raise UnsplittableError
        else:
            pieces.append(text[begin : token.start()])
            begin = token.end()
            if mark == closing:
                if begin != len(text):
                    raise UnsplittableError
                return [] if len(pieces) == 1 and not pieces[0].strip(WHITESPACE) else pieces
    raise UnsplittableError
