"""Markup that nothing put into it can break."""

import json
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.report.html.markup import el, embed_json, join

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=40)
CONTROL = {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F))}


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
    """Quotes, brackets, entities: what goes in comes out, and no element is born of it."""
    pieces = Read(el("p", text, title=attribute)).found

    text, attribute = (
        raw.translate(dict.fromkeys(map(ord, CONTROL), "\N{REPLACEMENT CHARACTER}")) for raw in (text, attribute)
    )
    assert ("p", {"title": attribute}) == pieces[0]
    assert text == "".join(str(piece) for piece in pieces[1:])


@given(st.recursive(TEXT | st.integers() | st.none(), lambda values: st.lists(values) | st.dictionaries(TEXT, values)))
def test_any_json_is_embedded_whole(document: object) -> None:
    """JSON inside a script element reads back as it was, and holds nothing that could end the element."""
    text = embed_json(document, "it")
    inner = text.removeprefix('<script type="application/json" id="it">').removesuffix("</script>")

    assert document == json.loads(inner)
    assert not set(inner) & {*"<>&\u2028\u2029", *CONTROL}


def test_markup_is_put_in_as_it_is_and_text_is_not() -> None:
    """Only what this module made counts as markup."""
    assert "<b>&lt;b&gt;</b>&lt;i&gt;" == join(el("b", "<b>"), "<i>", None)


def test_no_control_character_gets_onto_the_page() -> None:
    """Escape sequences, reversed text and half characters of an answer are marks on the page, which UTF-8 can hold."""
    foreign = "\x1b[31mred\x1b[0m \u202egnp.exe \x9b2J \ud800 \x00 tab\tline\n"

    page = join(el("p", foreign, title=foreign), embed_json({foreign: foreign}, foreign))

    assert not {*page.encode().decode()} & CONTROL
    assert "tab\tline\n" in page
