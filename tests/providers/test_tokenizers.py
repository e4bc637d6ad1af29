"""Token counts with real vocabularies, and the hot path's estimate compared with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from splintr import Tokenizer

from holdfast.core.conversation import token_estimate
from holdfast.providers import tokenizers

HERE = Path(__file__)
ROOT = HERE.parents[2]
VOCABULARIES = ("o200k_base", "cl100k_base", "llama3", "qwen3", "deepseek_v3", "mistral_v3", "gemma3", "kimi_k2")

TEXTS = {
    "prose": (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")[:12_000],
    "code": (ROOT / "src/holdfast/core/loop.py").read_text(encoding="utf-8")[:8_000],
    "json": json.dumps([{"id": f"call_{n}", "name": "search", "query": {"words": "kelp", "n": n}} for n in range(60)]),
    "german": "Der Anker hält das Schiff, auch wenn der Sturm über die See zieht und die Wellen höher schlagen. " * 12,
    "french": "L'ancre tient le navire, même lorsque la tempête passe sur la mer et que les vagues s'élèvent. " * 12,
    "spanish": "El ancla sujeta el barco, aunque la tormenta pase sobre el mar y las olas se levanten más alto. " * 12,
    "russian": "Якорь держит корабль, даже когда буря проходит над морем и волны поднимаются всё выше. " * 12,
    "chinese": "船锚牢牢地抓住海底，即使暴风雨席卷海面，波涛汹涌，船也不会漂走。" * 20,
    "japanese": "嵐が海を渡り、波が高くなっても、錨は船をしっかりとつなぎとめています。" * 20,
    "korean": "폭풍이 바다를 지나고 파도가 높아져도 닻은 배를 단단히 붙잡고 있습니다. " * 20,
    "arabic": "المرساة تمسك السفينة حتى عندما تمر العاصفة فوق البحر وترتفع الأمواج عاليا. " * 12,
}


@pytest.mark.parametrize(
    ("model", "text", "expected"),
    [
        ("gpt-4o-mini", "hello world", 2),
        ("openai/gpt-5", "tiktoken is great!", 6),
        ("gpt-4", "tiktoken is great!", 6),
        ("gpt-4o", "<|endoftext|>", 7),
    ],
)
def test_openai_models_are_counted_as_openai_counts_them(model: str, text: str, expected: int) -> None:
    assert tokenizers.count(model, text) == expected


def test_a_model_without_a_published_tokenizer_is_estimated() -> None:
    for model in ("claude-sonnet-4-5", "somebodys-own-model"):
        assert tokenizers.count(model, TEXTS["prose"]) == token_estimate.of_text(TEXTS["prose"])


def test_without_the_extra_every_model_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizers, "IS_INSTALLED", False)
    assert tokenizers.count("gpt-4o-mini", TEXTS["prose"]) == token_estimate.of_text(TEXTS["prose"])


@pytest.mark.parametrize("kind", TEXTS)
def test_the_estimate_is_near_the_counts_of_real_tokenizers(kind: str) -> None:
    """Within a third or so of the mean of eight vocabularies, and never less than half of what any of them counts."""
    text = TEXTS[kind]
    counts = [len(Tokenizer.from_pretrained(name).encode(text)) for name in VOCABULARIES]
    estimate, mean = token_estimate.of_text(text), sum(counts) / len(counts)
    assert 0.65 < estimate / mean < 1.4, (kind, estimate, counts)
    assert estimate > max(counts) / 2


def test_nothing_weighs_nothing_and_odd_bytes_do_no_harm() -> None:
    assert token_estimate.of_text("") == 0
    assert token_estimate.of_text("\ud800 half a character") > 0
    assert token_estimate.of_text("🙂" * 100) > 100
