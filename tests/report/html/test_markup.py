"""Markup that nothing put into it can break."""

import json
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.report.html.markup import el, embedded, join

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=40)


class Read(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[object] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.found.append(data)


@given(TEXT, TEXT)
def test_any_text_is_one_text_and_any_attribute_one_attribute(text: str, attribute: str) -> None:
    """
    Quotes, brackets, entities: what goes in comes out, and no element is born of it.
    """
    found = Read(el("p", text, title=attribute)).found

    assert ("p", {"title": attribute}) == found[0]
    assert text == "".join(str(one) for one in found[1:])


@given(st.recursive(TEXT | st.integers() | st.none(), lambda one: st.lists(one) | st.dictionaries(TEXT, one)))
def test_any_json_is_embedded_whole(document: object) -> None:
    """
    JSON inside a script element reads back as it was, and holds nothing that could end the element.
    """
    text = embedded(document, "it")
    inner = text.removeprefix('<script type="application/json" id="it">').removesuffix("</script>")

    assert document == json.loads(inner)
    assert not set(inner) & set("<>&\u2028\u2029")


def test_markup_is_put_in_as_it_is_and_text_is_not() -> None:
    """
    Only what this module made counts as markup.
    """
    assert "<b>&lt;b&gt;</b>&lt;i&gt;" == join(el("b", "<b>"), "<i>", None)
