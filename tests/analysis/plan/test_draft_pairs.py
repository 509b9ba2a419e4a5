"""Pairs: a draft speaks its target's vocabulary and is much lighter; the most able target comes first."""

from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.plan.draft_pairs import MOST_DRAFTS, WEIGHT_RATIO, LocalModel, model_pairs
from gatekeeper.core.manifest import Model


def candidate(
    name: str, size: int, tokens: str | None = "same", backend: str = "mlx", *, chats: bool = True
) -> LocalModel:
    model = Model(
        name=name,
        digest="",
        files={},
        bytes=size,
        quantisation="4-bit g64",
        vocabulary=100,
        tokens_sha256=tokens,
        template_sha256=None,
    )
    return LocalModel(model, backend, chats)


def named(candidates: list[LocalModel]) -> list[tuple[str, list[str]]]:
    return [(pair.target.name, [draft.name for draft in pair.drafts]) for pair in model_pairs(candidates)]


def test_the_heaviest_target_comes_first_and_then_with_fewer_drafts() -> None:
    """Where memory is short, the same target without its heaviest draft is tried before a lighter target."""
    models = [candidate("small", 6), candidate("large", 60), candidate("tiny", 2), candidate("half", 30)]

    assert [
        ("large", ["small", "tiny"]),
        ("large", ["tiny"]),
        ("half", ["small", "tiny"]),
        ("half", ["tiny"]),
        ("small", ["tiny"]),
    ] == named(models)


def test_a_target_has_a_chat_template_and_a_draft_needs_none() -> None:
    """Canaries are conversations, which the target's template writes; a draft only continues tokens."""
    assert [] == named([candidate("base", 60, chats=False), candidate("draft", 6)])
    assert [("target", ["base"])] == named([candidate("target", 60), candidate("base", 6, chats=False)])


sizes = st.integers(min_value=1, max_value=200)
anyone = st.builds(
    candidate,
    st.text("abc", min_size=1),
    sizes,
    st.sampled_from(["x", "y", None]),
    st.sampled_from(["mlx", "llama-server"]),
    chats=st.booleans(),
)


@given(st.lists(anyone, max_size=9))
def test_no_pair_is_made_that_could_not_work(candidates: list[LocalModel]) -> None:
    """One token map, known; one backend; every draft at most a third of its target, heaviest first, never empty."""
    for pair in model_pairs(candidates):
        assert {pair.target.tokens_sha256} == {draft.tokens_sha256 for draft in pair.drafts} != {None}
        assert all(draft.bytes * WEIGHT_RATIO <= pair.target.bytes for draft in pair.drafts)
        weights = [draft.bytes for draft in pair.drafts]
        assert sorted(weights, reverse=True) == weights
        assert 1 <= len(weights) <= MOST_DRAFTS
        served = {local.backend for local in candidates if local.model in (pair.target, *pair.drafts)}
        assert pair.backend in served
    weights = [pair.target.bytes for pair in model_pairs(candidates)]
    assert sorted(weights, reverse=True) == weights
