"""Readers of traces: what they take, what they warn of, what they refuse and where."""

from __future__ import annotations

import csv
import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from simulator.errors import InputError
from simulator.workload.traces import read_trace
from simulator.workload.traces.azure import Azure
from simulator.workload.traces.native import Native

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
GOOD = HEADER + (
    "2031-02-03 04:05:06.1000000,101,11\n"
    "2031-02-03 04:05:06.3500000,202,22\n"
    "2031-02-03 04:05:07.0000001,303,33\n"
)
GOOD_ARRIVAL_S = [0.0, 0.25, 0.9000001]
GOOD_TOKENS = [[101, 11], [202, 22], [303, 33]]
NATIVE = "arrival_s,input_tokens,output_tokens\n"


def write(folder: Path, content: str | bytes, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def error(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert caught.value.file == str(path)
    return caught.value


@pytest.mark.parametrize(
    "content",
    [
        GOOD.encode(),
        GOOD.replace("\n", "\r\n").encode(),
        GOOD.removesuffix("\n").encode(),
        b"\xef\xbb\xbf" + GOOD.encode(),
        GOOD.replace(",", "\t").encode(),
        gzip.compress(GOOD.encode(), mtime=0),
        gzip.compress(GOOD[:50].encode(), mtime=0) + gzip.compress(GOOD[50:].encode(), mtime=0),
        GOOD.replace("\n", "\n\n").encode(),
        b"\n \n" + GOOD.encode(),
        GOOD.replace("TIMESTAMP,ContextTokens", " timestamp , contexttokens").encode(),
        GOOD.replace(",101,", ', "101" ,'.replace(" ", "")).encode(),
    ],
    ids=["lf", "crlf", "no-end", "bom", "tabs", "gzip", "gzip-members", "blank", "lead", "case", "quotes"],
)
@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_the_same_rows_in_another_dress_are_the_same_trace(tmp_path: Path, content: bytes, name: str) -> None:
    trace = read_trace(write(tmp_path, content, name))
    assert trace.arrival_s.tolist() == GOOD_ARRIVAL_S
    assert trace.tokens.tolist() == GOOD_TOKENS
    assert trace.warnings == ()


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-01 00:00:00", 0),
        ("1970-01-01 00:01:02.5", 62_500_000_000),
        ("1970-01-01T00:00:00.269Z", 269_000_000),
        ("1970-01-01 00:00:00.001163+00:00", 1_163_000),
        ("1970-01-01 00:00:00+00:00", 0),
        ("1970-01-02 01:00:00.000000001+01:00", 86_400_000_000_001),
        ("1970-01-01 00:00:00-0530", 19_800_000_000_000),
        ("1970-01-01 00:00:00.123456789", 123_456_789),
        ("1970-01-01 00:00:00.1234567894", 123_456_789),
        ("1970-01-01 00:00:00.1234567895", 123_456_790),
        ("1970-03-01 00:00:00", 59 * 86_400_000_000_000),
        (" 1970-01-01 00:00:00.2 ", 200_000_000),
    ],
)
def test_a_time_is_exact_on_first_and_later_sight(text: str, nanoseconds: int) -> None:
    times = Azure()
    assert [times.time_ns(text), times.time_ns(text)] == [nanoseconds, nanoseconds]


@pytest.mark.parametrize(
    "text",
    [
        "2031-02-30 04:05:08",
        "2016-12-31 23:59:60.5",
        "2031-02-03 24:00:00",
        "2031-02-03 04:60:00",
        "2031-02-03 04:05",
        "2031-02-03 04:05:06.",
        "2031-02-03 04:05:06.1Z+00:00",
        "2031-02-03 04:05:06.1+00:00Z",
        "2031-02-03 04:05:06.1.2",
        "2031-02-03 04:05:06.1_0",
        "2031-02-03 04:05:06.٣",
        "2031-02-03 04:05:06+25:00",
        "2031-02-03 04:05:0٣",
        "20310203T040506",
        "2031-W05-1",
        "03/02/2031 04:05",
        "47882.17021",
        "1031-02-03 04:05:06",
        "TIMESTAMP",
        "",
        "null",
        "x" * 100_000,
    ],
)
def test_what_is_not_a_time_is_refused_on_first_and_later_sight(text: str) -> None:
    times = Azure()
    times.time_ns("2031-02-03 04:05:06.1")
    for _ in range(2):
        with pytest.raises(InputError) as caught:
            times.time_ns(text)
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("1.5", 1_500_000_000),
        (".5", 500_000_000),
        ("0.000000001", 1),
        ("0.1234567895", 123_456_790),
        ("1e-3", 1_000_000),
        ("-2", -2_000_000_000),
        (" +2. ", 2_000_000_000),
        ("1700000000.25", 1_700_000_000_250_000_000),
    ],
)
def test_native_seconds_are_exact(text: str, nanoseconds: int) -> None:
    assert Native().time_ns(text) == nanoseconds


@pytest.mark.parametrize("text", ["", "nan", "inf", "1_0", "٣", "1,5", ".", "1e999", "1700000000000", "0x1"])
def test_what_is_not_a_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        Native().time_ns(text)


@pytest.mark.parametrize("text", ["374.0", "374.00", "3.74e2", " 374 ", "+374", "0374"])
def test_a_whole_number_of_tokens_may_be_written_in_many_ways(tmp_path: Path, text: str) -> None:
    trace = read_trace(write(tmp_path, f"{NATIVE}0,{text},1\n"))
    assert trace.tokens.tolist() == [[374, 1]]


@pytest.mark.parametrize(
    "text",
    [
        "374.5",
        "NaN",
        "",
        "-5",
        "1_000",
        "٣٧٤",
        "３９６",
        '"1,234"',
        "99999999999999999999",
        "1e400",
        "4\x0004",
    ],
)
@pytest.mark.parametrize("field", ["ContextTokens", "GeneratedTokens"])
def test_a_bad_number_of_tokens_is_refused_with_its_place(tmp_path: Path, text: str, field: str) -> None:
    cells = f"{text},4" if field == "ContextTokens" else f"4,{text}"
    found = error(write(tmp_path, GOOD + f"2031-02-03 04:05:08,{cells}\n"))
    assert (found.line, found.field) == (5, field)


@pytest.mark.parametrize(
    ("content", "line", "field", "says"),
    [
        (b"", 1, None, "empty file"),
        (b"\n\n\n", None, None, "only blank lines"),
        (HEADER.encode(), None, None, "no data rows"),
        (HEADER.encode() + b"\n" * 1_000_000, None, None, "no data rows"),
        (GOOD.encode("utf-16"), 1, None, "UTF-16"),
        (GOOD.encode() + b"2031-02-03 04:05:08,caf\xe9,1\n", 5, None, "not UTF-8"),
        (b"2031-02-03 04:05:06,10,5\n", 1, None, "not the header"),
        (b"TIMESTAMP,ContextTokens\n1,2\n", 1, "GeneratedTokens", "formats tried: azure"),
        (b'{"timestamp": 0, "input_length": 5}\n', 1, None, "formats tried: azure"),
        (HEADER.replace(",Gen", ",ContextTokens,Gen").encode(), 1, "ContextTokens", "twice"),
        (GOOD.encode() + b"2031-02-03 04:05:08,4\n", 5, None, "field count 2, want 3"),
        (GOOD.encode() + b"2031-02-03 04:05:08,4,5,6\n", 5, None, "field count 4, want 3"),
        (GOOD.encode() + HEADER.encode(), 5, "TIMESTAMP", "second header"),
        (GOOD.encode() + b'"2031\n', 5, None, "not CSV"),
        (GOOD.replace("\n", "\r").encode(), 1, None, "not CSV"),
        (gzip.compress(GOOD.encode(), mtime=0)[:-20], None, None, "cut short"),
        (b"\x1f\x8bnot gzip at all", None, None, "gzip"),
        (b"\x00" * 17_000_000, 1, None, "longer than 16 MiB"),
        (NATIVE.encode() + b"0,0,5\n1,5,0\n", None, None, "all 2 rows have zero tokens"),
    ],
)
def test_a_broken_file_is_refused_with_its_place(
    tmp_path: Path, content: bytes, line: int | None, field: str | None, says: str
) -> None:
    found = error(write(tmp_path, content))
    assert (found.line, found.field) == (line, field)
    assert says in str(found)


def test_lines_are_counted_past_blank_blocks_and_cells_of_several_lines(tmp_path: Path) -> None:
    # Header 1, a row on 2 and 3, blanks from 4 to 1,000,003, the bad row after them.
    content = f'{NATIVE[:-1]},note\n0,1,1,"a\nb"\n' + "\n" * 1_000_000 + '1,x,1,"c\nd"\n'
    found = error(write(tmp_path, content))
    assert (found.line, found.field) == (1_000_004, "input_tokens")


def test_a_bad_row_late_in_a_long_file_is_found(tmp_path: Path) -> None:
    rows = "".join(f"{second},10,20\n" for second in range(60_000))
    assert error(write(tmp_path, NATIVE + rows + "60000,10,x\n")).line == 60_002


@pytest.mark.parametrize("kind", ["missing", "dangling", "loop", "folder", "long"])
def test_a_path_that_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("x" * 5000 if kind == "long" else "trace.csv")
    if kind == "dangling":
        path.symlink_to(tmp_path / "nowhere.csv")
    if kind == "loop":
        path.symlink_to(path)
    if kind == "folder":
        path.mkdir()
    error(path)


def test_a_link_to_a_file_and_an_odd_name_are_read(tmp_path: Path) -> None:
    target = write(tmp_path, GOOD, "a name & ünïcode.csv")
    link = tmp_path / "link.csv"
    link.symlink_to(target)
    assert read_trace(link).tokens.tolist() == GOOD_TOKENS


@pytest.mark.skipif(os.name != "posix", reason="named pipes")
def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    import threading

    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(GOOD,))
    writer.start()
    assert read_trace(pipe).tokens.tolist() == GOOD_TOKENS
    writer.join()


def test_further_columns_are_ignored_and_named_once(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, 'output_tokens,note,input_tokens,arrival_s\n5,"a, b",10,0\n6,,20,1\n'))
    assert trace.tokens.tolist() == [[10, 5], [20, 6]]
    assert [warning.endswith("columns ignored: 'note'") for warning in trace.warnings] == [True]


def test_rows_out_of_order_are_sorted_stably_and_counted(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, NATIVE + "5,1,1\n3,2,1\n5,3,1\n3,4,1\n9,5,1\n"))
    assert trace.tokens[:, 0].tolist() == [2, 4, 1, 3, 5]
    assert trace.arrival_s.tolist() == [0, 0, 2, 2, 6]
    assert len(trace.warnings) == 1
    assert "2 rows earlier than the row before, by up to 2 s" in trace.warnings[0]


def test_rows_without_prompt_or_output_are_skipped_and_counted(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, NATIVE + "0,0,5\n1,5,0\n2,5,5\n3,7,0\n"))
    assert trace.tokens.tolist() == [[5, 5]]
    assert trace.arrival_s.tolist() == [0]
    assert [warning.split(": ")[1] for warning in trace.warnings] == [
        "1 row with zero input tokens skipped",
        "2 rows with zero output tokens skipped",
    ]


def test_times_with_and_without_offset_are_read_as_utc_and_counted(tmp_path: Path) -> None:
    rows = "2031-02-03 04:05:06,1,1\n2031-02-03 04:05:07+00:00,2,2\n"
    trace = read_trace(write(tmp_path, HEADER + rows))
    assert trace.arrival_s.tolist() == [0, 1]
    assert len(trace.warnings) == 1


def test_a_limit_takes_the_first_in_time(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, NATIVE + "5,1,1\n3,2,1\n4,3,1\n"), limit=2)
    assert trace.tokens[:, 0].tolist() == [2, 3]
    assert trace.arrival_s.tolist() == [0, 1]


def test_a_format_that_is_asked_for_is_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="formats tried: native"):
        read_trace(write(tmp_path, GOOD), "native")


def test_equal_times_and_a_single_row_are_fine(tmp_path: Path) -> None:
    assert read_trace(write(tmp_path, NATIVE + "7,1,1\n7,2,2\n")).arrival_s.tolist() == [0, 0]
    assert read_trace(write(tmp_path, NATIVE + "7,1,1\n")).arrival_s.tolist() == [0]


# Examples that are not part of the repository: read where they lie beside it.

EXAMPLES = Path(__file__).parents[3] / "shared" / "traces"
MADE_BY_TESTS = ("n120", "n121", "n122", "n123")


def _table() -> list[dict[str, str]]:
    manifest = EXAMPLES / "nasty" / "MANIFEST.csv"
    if not manifest.is_file():
        return []
    with manifest.open(newline="") as file:
        rows = list(csv.DictReader(file))
    wanted = [row for row in rows if row["format"] in ("azure", "any")]
    return [row for row in wanted if not row["file"].startswith(MADE_BY_TESTS)]


@pytest.mark.parametrize("case", _table(), ids=lambda case: case["file"])
def test_an_odd_file_is_taken_or_refused_as_its_table_says(case: dict[str, str]) -> None:
    path = EXAMPLES / "nasty" / case["file"]
    if case["expect"] == "ERROR":
        found = error(path)
        place = "".join(f":{part}" for part in (found.line, found.field) if part is not None)
        assert (place or "file") == case["error_at"]
        return
    trace = read_trace(path)
    assert len(trace.arrival_s) == int(case["rows_loaded"])
    told = [warning for warning in trace.warnings if "columns ignored" not in warning]
    assert bool(told) == (case["expect"] == "WARN")


def _excerpts() -> dict[str, dict[str, int]]:
    expected = EXAMPLES / "EXPECTED.json"
    if not expected.is_file():
        return {}
    entries = json.loads(expected.read_text())
    return {name: entry for name, entry in entries.items() if "azure" in name}


@pytest.mark.parametrize("name", list(_excerpts()))
def test_an_excerpt_of_a_public_trace_adds_up(name: str) -> None:
    expected, trace = _excerpts()[name], read_trace(EXAMPLES / name)
    times_ns = np.rint(trace.arrival_s * 1e9).astype(np.int64)
    assert len(times_ns) == expected["rows"]
    assert trace.tokens.astype(np.int64).sum(axis=0).tolist() == [
        expected["sum_input"],
        expected["sum_output"],
    ]
    assert trace.tokens.max(axis=0).tolist() == [expected["max_input"], expected["max_output"]]
    assert int(times_ns[-1]) == expected["span_ns"]
    assert len(np.unique(times_ns)) == expected["distinct_timestamps"]
    assert any("earlier" in warning for warning in trace.warnings) == (expected["inversions"] > 0)
