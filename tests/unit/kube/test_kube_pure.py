"""The pure parts of raybus.kube: errors, the limit, watch plans, lines, event series."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybus.kube import errors, watchplan
from raybus.kube.client import with_preconditions
from raybus.kube.limit import WINDOW, AdaptiveLimit
from raybus.kube.lines import LineSplitter
from raybus.kube.series import EventKey, SeriesTable, cut, event_body, micro_time, reference
from raybus.kube.watchplan import Position

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def status(code: int, reason: str, **more: object) -> bytes:
    return orjson.dumps(
        {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "words", **more}
    )


class TestErrors:
    @pytest.mark.parametrize(
        ("code", "reason", "expected"),
        [
            (404, "NotFound", errors.NotFound),
            (409, "Conflict", errors.Conflict),
            (409, "AlreadyExists", errors.AlreadyExists),
            (422, "Invalid", errors.Invalid),
            (403, "Forbidden", errors.Forbidden),
            (401, "Unauthorized", errors.Unauthorized),
            (410, "Expired", errors.Expired),
            (410, "Gone", errors.Expired),
            (429, "TooManyRequests", errors.TooManyRequests),
            (500, "InternalError", errors.KubeError),
        ],
    )
    def test_class_by_reason(self, code: int, reason: str, expected: type[errors.KubeError]) -> None:
        error = errors.from_response(code, status(code, reason))
        assert type(error) is expected
        assert (error.code, error.reason, error.message) == (code, reason, "words")

    def test_plain_text_answer_is_classed_by_code(self) -> None:
        error = errors.from_response(404, b"404 page not found\n")
        assert isinstance(error, errors.NotFound)
        assert error.resource_unknown
        assert error.message == "404 page not found"

    def test_an_absent_object_is_no_absent_kind(self) -> None:
        error = errors.from_response(404, status(404, "NotFound", details={"name": "x", "kind": "pods"}))
        assert isinstance(error, errors.NotFound)
        assert not error.resource_unknown

    def test_retry_after_from_header_or_details(self) -> None:
        assert errors.from_response(429, status(429, "TooManyRequests"), "7").retry_after_s == 7
        details = {"retryAfterSeconds": 3}
        assert errors.from_response(429, status(429, "TooManyRequests", details=details)).retry_after_s == 3
        assert errors.from_response(429, b"", "Wed, 21 Oct 2015 07:28:00 GMT").retry_after_s is None

    def test_which_failures_are_ambiguous(self) -> None:
        assert errors.NoAnswer("gone").ambiguous
        assert not errors.NoAnswer("refused", sent=False).ambiguous
        assert errors.from_response(504, status(504, "Timeout")).ambiguous
        timed_out = status(500, "InternalError", message="etcdserver: request timed out")
        assert errors.from_response(500, timed_out).ambiguous
        assert not errors.from_response(409, status(409, "Conflict")).ambiguous

    def test_namespace_terminating(self) -> None:
        details = {"causes": [{"reason": "NamespaceTerminating", "message": "..."}]}
        assert errors.from_response(403, status(403, "Forbidden", details=details)).namespace_terminating
        assert not errors.from_response(403, status(403, "Forbidden")).namespace_terminating


class TestLimit:
    def window(self, limit: AdaptiveLimit, latency_s: float, in_flight: int) -> None:
        for _ in range(WINDOW):
            limit.answered(latency_s, in_flight)

    def test_grows_by_one_while_latency_does_not(self) -> None:
        limit = AdaptiveLimit(limit=16)
        self.window(limit, 0.01, 16)
        self.window(limit, 0.011, 17)
        assert limit.limit == 18
        self.window(limit, 0.05, 18)
        assert limit.limit == 18

    def test_does_not_grow_when_it_was_not_reached(self) -> None:
        limit = AdaptiveLimit(limit=16)
        self.window(limit, 0.01, 3)
        assert limit.limit == 16

    def test_requests_that_were_refused_together_halve_once(self) -> None:
        limit = AdaptiveLimit(limit=16)
        limit.overloaded(now=100.0, retry_after_s=2.0)
        limit.overloaded(now=100.1, retry_after_s=None)
        assert (limit.limit, limit.not_before) == (8, 102.0)
        limit.overloaded(now=103.0, retry_after_s=9999.0)
        assert (limit.limit, limit.not_before) == (4, 133.0)

    def test_never_below_or_above_its_bounds(self) -> None:
        limit = AdaptiveLimit(limit=3, lowest=2, highest=4)
        for now in range(0, 20, 2):
            limit.overloaded(float(now), None)
        assert limit.limit == 2
        for _ in range(5):
            self.window(limit, 0.01, 9)
        assert limit.limit == 4


class TestWatchPlan:
    def test_an_ended_watch_resumes_at_once(self) -> None:
        position, following = watchplan.after_end(Position("7"), relist_due=False, brought=True, chance=0.5)
        assert position.resource_version == "7"
        assert (following.relist, following.delay_s) == (False, 0.0)

    def test_watches_that_end_without_a_frame_slow_down(self) -> None:
        position, delays = Position("7"), []
        for _ in range(4):
            position, following = watchplan.after_end(position, relist_due=False, brought=False, chance=0.0)
            delays.append(following.delay_s)
        assert delays == sorted(delays)
        assert delays[0] > 0
        assert position.resource_version == "7"

    def test_a_due_relist_forgets_the_place(self) -> None:
        position, following = watchplan.after_end(Position("7"), relist_due=True, brought=True, chance=0.0)
        assert (position.resource_version, following.relist) == ("", True)

    def test_expired_lists_again_at_once_but_not_for_ever(self) -> None:
        gone = errors.from_response(410, status(410, "Expired"))
        position, following = watchplan.after_error(Position("7"), gone, chance=0.0)
        assert (position.resource_version, following.relist, following.delay_s) == ("", True, 0.0)
        _, again = watchplan.after_error(position.listed("9"), gone, chance=0.0)
        assert again.delay_s > 0
        _, later = watchplan.after_error(position.listed("9").reached("10"), gone, chance=0.0)
        assert later.delay_s == 0

    def test_expired_after_an_outage_lists_at_once_too(self) -> None:
        position = Position("7")
        for _ in range(5):
            position, _ = watchplan.after_error(position, errors.NoAnswer("refused", sent=False), chance=0.0)
        _, following = watchplan.after_error(position, errors.from_response(410, status(410, "Expired")), chance=0.0)
        assert (following.relist, following.delay_s) == (True, 0.0)

    def test_a_cut_watch_resumes_where_it_was(self) -> None:
        position, following = watchplan.after_error(Position("7"), errors.NoAnswer("cut"), chance=0.0)
        assert (position.resource_version, following.relist) == ("7", False)

    def test_many_failures_in_a_row_list_again(self) -> None:
        position = Position("7")
        for _ in range(watchplan.RELIST_AFTER_FAILURES):
            position, following = watchplan.after_error(position, errors.NoAnswer("cut"), chance=0.0)
        assert following.relist
        assert position.resource_version == ""

    def test_retry_after_is_obeyed(self) -> None:
        error = errors.from_response(429, status(429, "TooManyRequests"), "5")
        assert watchplan.after_error(Position("7"), error, chance=0.0)[1].delay_s == 5

    @given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
    def test_back_off_is_bounded(self, failures: int, chance: float) -> None:
        assert 0 < watchplan.backoff_s(failures, chance) <= watchplan.LONGEST_DELAY_S


class TestLines:
    @given(st.lists(st.binary(max_size=20).filter(lambda b: b"\n" not in b), max_size=20), st.data())
    def test_whatever_the_pieces_the_lines_are_the_same(self, lines: list[bytes], data: st.DataObject) -> None:
        whole = b"".join(line + b"\n" for line in lines) + b"rest"
        cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
        splitter, got = LineSplitter(100), []
        for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
            got += splitter.feed(whole[start:end])
        assert got == lines
        assert splitter.rest() == b"rest"

    def test_a_line_without_end_is_refused(self) -> None:
        splitter = LineSplitter(10)
        splitter.feed(b"123456")
        with pytest.raises(ValueError, match="longer than 10"):
            splitter.feed(b"123456")


class TestSeries:
    KEY = EventKey("c", "c-host", "Normal", "Created", "Create", ("v1", "Pod"))

    def test_repetitions_are_counted_not_sent_one_by_one(self) -> None:
        table = SeriesTable()
        series, delay = table.observe(self.KEY, {"note": "first"}, NOW)
        assert delay == 0
        for _ in range(4):
            assert table.observe(self.KEY, {"note": "later"}, NOW) == (series, None)
        assert series.create_body()["note"] == "first"
        assert series.create_body()["series"]["count"] == 5

    def test_a_repetition_after_the_send_is_sent_later_once(self) -> None:
        table = SeriesTable()
        series, _ = table.observe(self.KEY, {}, NOW)
        series.queued, series.written = False, 1
        _, delay = table.observe(self.KEY, {}, NOW)
        assert delay is not None
        assert delay > 0
        assert table.observe(self.KEY, {}, NOW)[1] is None

    def test_after_a_long_pause_it_is_a_new_event(self) -> None:
        table = SeriesTable()
        first, _ = table.observe(self.KEY, {}, NOW)
        second, delay = table.observe(self.KEY, {}, NOW + timedelta(minutes=7))
        assert first is not second
        assert delay == 0

    def test_the_table_is_bounded(self) -> None:
        table = SeriesTable(keys_max=2)
        first, _ = table.observe(self.KEY, {}, NOW)
        for reason in ("A", "B"):
            table.observe(EventKey("c", "i", "Normal", reason, "x", ()), {}, NOW)
        assert table.observe(self.KEY, {}, NOW)[0] is not first

    def test_micro_time_always_has_six_digits(self) -> None:
        assert micro_time(NOW) == "2026-01-02T03:04:05.000000Z"
        assert micro_time(NOW.replace(microsecond=70)) == "2026-01-02T03:04:05.000070Z"

    @given(st.text(max_size=2000), st.integers(10, 1024))
    def test_notes_are_cut_between_characters(self, text: str, size: int) -> None:
        short = cut(text, size)
        assert len(short.encode()) <= size
        assert short == text or text.startswith(short[:-1])

    def test_body_has_the_fields_of_events_v1(self) -> None:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {}}}
        target = reference(pod)
        assert target == {"apiVersion": "v1", "kind": "Pod", "namespace": "n", "name": "p", "uid": "u"}
        assert reference(target) == target
        body = event_body(self.KEY, target, "é" * 2000, name="p.1", namespace="n", now=NOW)
        assert len(body["note"].encode()) <= 1024
        assert body["reportingInstance"] == "c-host"


def test_preconditions_join_the_patch_and_leave_it_alone() -> None:
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {}}
    assert with_preconditions(patch, "u", "5") == {
        "metadata": {"labels": {"a": "b"}, "uid": "u", "resourceVersion": "5"},
        "spec": {},
    }
    assert patch == {"metadata": {"labels": {"a": "b"}}, "spec": {}}
    assert with_preconditions(patch, None, None) is patch
