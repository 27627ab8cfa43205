"""What is not markup is text."""

from elfnet.report.markup import Markup, element, escaped, joined, readable, unbroken


def test_text_is_escaped_and_markup_is_not_escaped_twice() -> None:
    inner = element("b", "1 < 2 & \"3\" '4'")
    assert inner == "<b>1 &lt; 2 &amp; &quot;3&quot; &#x27;4&#x27;</b>"
    assert element("p", inner, " <i>") == f"<p>{inner} &lt;i&gt;</p>"
    assert isinstance(joined("a", inner), Markup)


def test_attributes_are_escaped_and_named_as_in_html() -> None:
    shown = element("td", "x", class_="number", data_value='"><script>', hidden=False, title=None, open=True, colspan=2)
    assert shown == '<td class="number" data-value="&quot;&gt;&lt;script&gt;" open colspan="2">x</td>'
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_control_characters_are_replaced() -> None:
    # NUL, escape, a right-to-left override and half a surrogate pair would upset the page or its encoding.
    assert readable("a\x00b\x1bc\u202ed\ud800e") == "a\ufffdb\ufffdc\ufffdd\ufffde"
    assert escaped("\ud800").encode() == "\ufffd".encode()


def test_numbers_stay_with_their_units() -> None:
    assert unbroken("92.6 % of n = 5") == "92.6\u00a0% of n\u00a0=\u00a05"
