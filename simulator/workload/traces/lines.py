"""Lines of a text file that nobody vouches for: plain or gzip, read in blocks, counted as they stand."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from simulator.errors import InputError

_BLOCK_BYTES = 256 * 1024
_LONGEST_LINE_BYTES = 16 * 1024 * 1024
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_UTF8_BOM = b"\xef\xbb\xbf"

Bytes = io.BufferedReader | gzip.GzipFile


@contextmanager
def open_binary(path: Path) -> Iterator[Bytes]:
    """The bytes of a file, unpacked if they are gzip, whatever its name."""
    try:
        with path.open("rb", buffering=_BLOCK_BYTES) as raw:
            assert isinstance(raw, io.BufferedReader)
            if raw.peek(2)[:2] == b"\x1f\x8b":
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield unpacked
            else:
                yield raw
    except FileNotFoundError:
        raise InputError("no such file", file=path, remedy="check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read: {reason}", file=path) from None


class Lines:
    """Lines of a file with their ends; blocks that are all blank are passed over."""

    def __init__(self, file: Bytes, path: Path) -> None:
        self._file = file
        self._path = path
        self._ended = 0
        self.skipped = 0
        """Blank lines passed over before the line that was given last."""

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._blocks())

    def _blocks(self) -> Iterator[io.StringIO]:
        rest = b""
        for block in chain([self._first()], iter(self._read, b"")):
            if not rest and block.isspace() and block.endswith(b"\n"):
                self._skip(block)
                continue
            whole, end, tail = block.rpartition(b"\n")
            if end:
                yield self._text(rest + whole + end)
                rest = tail
            else:
                rest += block
                self._check_length(rest)
        if rest:
            yield self._text(rest)

    def _first(self) -> bytes:
        start = self._read()
        if not start:
            raise InputError("empty file", file=self._path, line=1)
        if start.startswith(_UTF16):
            raise InputError(
                "is UTF-16 text", file=self._path, line=1, remedy="convert it: iconv -f UTF-16 -t UTF-8"
            )
        return start.removeprefix(_UTF8_BOM)

    def _read(self) -> bytes:
        try:
            return self._file.read1(_BLOCK_BYTES)
        except EOFError:
            raise InputError(f"gzip data cut short after {self._ended} lines", file=self._path) from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"gzip data damaged: {error}", file=self._path) from None

    def _skip(self, blank: bytes) -> None:
        lines = blank.count(b"\n")
        self._ended += lines
        self.skipped += lines

    def _text(self, block: bytes) -> io.StringIO:
        try:
            text = io.StringIO(block.decode())
        except UnicodeDecodeError as error:
            offset = error.start - block.rfind(b"\n", 0, error.start)
            raise InputError(
                f"byte {offset} of the line is not UTF-8",
                file=self._path,
                line=self._ended + block.count(b"\n", 0, error.start) + 1,
                remedy="convert the file to UTF-8",
            ) from None
        self._ended += block.count(b"\n")
        return text

    def _check_length(self, line: bytes) -> None:
        if len(line) > _LONGEST_LINE_BYTES:
            limit = f"{_LONGEST_LINE_BYTES >> 20} MiB"
            raise InputError(f"a line longer than {limit}", file=self._path, line=self._ended + 1)
