"""Property tests of compaction: for any history and mode, the kept context is valid and has the newest exchange."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.compaction import (
    CompactionSettings,
    choose_cut,
    cut_points,
    keep_share,
    transcript,
    without_a_summary,
)
from holdfast.core.conversation import token_estimate
from holdfast.core.conversation.messages import (
    Approval,
    ApprovalRequestBody,
    ApprovalResponseBody,
    AssistantBody,
    Body,
    CompactionStats,
    SummaryBody,
    SystemBody,
    Text,
    ToolCall,
    ToolResult,
    ToolReturnsBody,
    UserBody,
)
from holdfast.core.state import CompactionMethod

STATS = CompactionStats("manual", 1, 1, 1, 1, 1)
MODES = ("all", "sliding_window", "self_compact_all", "self_compact_sliding_window")
WAYS: tuple[CompactionMethod, ...] = ("asked", "all", "truncate")


def user(text: str = "hello") -> UserBody:
    return UserBody((Text(text),))


def says(text: str = "hm", *calls: str) -> AssistantBody:
    return AssistantBody((Text(text),), tuple(ToolCall(c, "look", "{}") for c in calls))


def returns(*calls: str, text: str = "seen") -> ToolReturnsBody:
    return ToolReturnsBody(tuple(ToolResult(c, "success", text) for c in calls))


@st.composite
def histories(draw: st.DrawFn) -> list[Body]:
    """Valid histories as the loop leaves them: plain turns, parallel calls, approvals answered at once or in parts,
    calls that were lost and asked about again, and perhaps a pending approval at the end."""
    words = st.integers(1, 400).map(lambda size: "w " * size)
    context: list[Body] = [SystemBody("You are a test.")]
    if draw(st.booleans()):
        context.append(SummaryBody(draw(words), STATS))
    number = 0
    for _ in range(draw(st.integers(1, 5))):
        context += [user(draw(words)) for _ in range(draw(st.integers(1, 2)))]
        for _ in range(draw(st.integers(0, 4))):
            calls = [f"c{number}.{i}" for i in range(draw(st.integers(1, 3)))]
            number += 1
            context += draw(st.sampled_from((plain, gated, mixed, in_parts, lost)))(calls, draw(words))
        if draw(st.booleans()):
            context.append(says(draw(words)))
    if draw(st.booleans()):
        context += [user(), ApprovalRequestBody((ToolCall("pending", "pay", "{}"),))]
    return context


def plain(calls: list[str], text: str) -> list[Body]:
    return [says(text, *calls), returns(*calls, text=text)]


def gated(calls: list[str], text: str) -> list[Body]:
    asked = ApprovalRequestBody(tuple(ToolCall(c, "pay", "{}") for c in calls), (Text(text),))
    return [asked, answered(calls), returns(*calls, text=text)]


def mixed(calls: list[str], text: str) -> list[Body]:
    free, asked = calls[:1], calls[1:] or [f"{calls[0]}x"]
    request = ApprovalRequestBody(tuple(ToolCall(c, "pay", "{}") for c in asked))
    return [says(text, *free), request, answered(asked), returns(*asked, *free)]


def in_parts(calls: list[str], text: str) -> list[Body]:
    asked = ApprovalRequestBody(tuple(ToolCall(c, "pay", "{}") for c in calls))
    return [asked, *(answered([c]) for c in calls), returns(*calls, text=text)]


def lost(calls: list[str], text: str) -> list[Body]:
    again = ApprovalRequestBody(tuple(ToolCall(c, "pay", "{}") for c in calls))
    return [*gated(calls, text)[:2], again, answered(calls), returns(*calls)]


def answered(calls: list[str]) -> Body:
    return ApprovalResponseBody(tuple(Approval(c, True) for c in calls))


def asked_and_returned(bodies: list[Body]) -> tuple[set[str], list[str]]:
    asked = {c.id for b in bodies if isinstance(b, AssistantBody | ApprovalRequestBody) for c in b.calls}
    return asked, [r.call_id for b in bodies if isinstance(b, ToolReturnsBody) for r in b.results]


@settings(max_examples=600, deadline=None)
@given(histories(), st.sampled_from(MODES), st.sampled_from(WAYS), st.floats(0.01, 0.95))
def test_what_stays_is_valid_and_holds_the_newest_exchange(
    context: list[Body], mode: Any, method: CompactionMethod, percentage: float
) -> None:
    chosen = CompactionSettings(mode=mode, sliding_window_percentage=percentage)
    sizes = [token_estimate.of_body(body) for body in context]
    share, exchange_only = keep_share(chosen, method)
    budget = int(sum(sizes) * share)
    keep = choose_cut(context, sizes, budget, exchange_only=exchange_only)
    if keep is None:
        return
    going, stays = context[1:keep], context[keep:]
    assert isinstance(context[0], SystemBody)
    assert stays, "something always stays"
    assert any(not isinstance(body, SummaryBody) for body in going), "a cut takes more than an old summary"
    asked, returned = asked_and_returned(stays)
    assert set(returned) <= asked, "a return without its call"
    assert len(returned) == len(set(returned))
    was_open = set(asked_and_returned(context)[0]) - set(asked_and_returned(context)[1])
    assert asked - set(returned) == was_open, "a call lost its return, or a pending one was left behind"
    gone, gone_returned = asked_and_returned(going)
    assert gone == set(gone_returned), "both halves of what goes belong together"
    assert keep <= cut_points(context)[-1], "the newest step stays"
    last_words = max(i for i, body in enumerate(context) if isinstance(body, UserBody))
    while isinstance(context[last_words - 1], UserBody):
        last_words -= 1
    if sum(sizes[last_words:]) <= budget:
        assert keep <= last_words, "the newest exchange stays whole if there is room for it"
    if keep not in (last_words, cut_points(context)[-1]):
        assert sum(sizes[keep:]) <= budget, "more stays than asked for, without need"
    if exchange_only:
        assert keep >= last_words, "only the newest exchange stays"


def test_a_window_keeps_as_much_as_its_percentage_and_all_keeps_only_the_newest_exchange() -> None:
    context = [SystemBody("s"), *(body for n in range(10) for body in (user(f"question {n}"), says(f"answer {n}")))]
    sizes = [10] * len(context)
    assert choose_cut(context, sizes, 63, exchange_only=False) == 15
    assert choose_cut(context, sizes, 63, exchange_only=True) == 19
    assert choose_cut(context, sizes, 5, exchange_only=True) == 20


def test_one_exchange_that_fits_is_left_alone_and_one_that_does_not_is_cut_between_its_steps() -> None:
    context: list[Body] = [SystemBody("s"), user()]
    for n in range(6):
        context += [says("look", f"c{n}"), returns(f"c{n}")]
    sizes = [10] * len(context)
    assert choose_cut(context, sizes, 1_000, exchange_only=True) is None
    assert choose_cut(context, sizes, 45, exchange_only=True) == 10


def test_nothing_goes_where_there_is_only_one_message_or_an_old_summary() -> None:
    assert choose_cut([SystemBody("s"), user()], [1, 1], 0, exchange_only=True) is None
    assert choose_cut([SystemBody("s"), SummaryBody("x", STATS), user()], [1, 1, 1], 0, exchange_only=True) is None


def test_without_a_summary_the_agent_is_told_what_the_user_wanted() -> None:
    text = without_a_summary([SummaryBody("They met.", STATS), user("find my keys"), says(), says()])
    assert "4 earlier messages" in text
    assert "find my keys" in text
    assert "They met." in text


def test_a_transcript_that_is_too_long_loses_its_oldest_part_and_says_so() -> None:
    text = transcript([user("old " * 100), user("new")], 50)
    assert text.startswith("[earlier part left out]")
    assert text.endswith("user: new")


def test_settings_come_in_layers_and_null_takes_the_clipping_away() -> None:
    chosen = CompactionSettings.of({"mode": "all", "clip_chars": 10, "x": 1}, {"clip_chars": None, "mode": None})
    assert (chosen.mode, chosen.clip_chars) == ("all", None)
