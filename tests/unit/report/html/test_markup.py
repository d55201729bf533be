"""The one place where text becomes HTML."""

from __future__ import annotations

from relink.report.html.markup import EMPTY, Html, breakable, escape_text, joined, tag


def test_children_are_escaped_and_elements_are_not() -> None:
    assert tag("p", "<b>&\"'", tag("b", "x"), None) == "<p>&lt;b&gt;&amp;\"'<b>x</b></p>"
    assert isinstance(tag("p"), Html)


def test_attributes() -> None:
    made = tag("a", class_="x y", aria_label='"<', hidden=True, id=None, open=False, tabindex=0)
    assert made == '<a class="x y" aria-label="&quot;&lt;" hidden tabindex="0"></a>'
    assert tag("meta", name="a") == '<meta name="a">'


def test_what_steers_is_spelled_out() -> None:
    assert tag("p", "\u202ea\n", title="\x1b") == r'<p title="\x1b">\u202ea\n</p>'


def test_a_name_without_end_is_cut() -> None:
    assert escape_text("a" * 1500 + "b" * 1500) == f"{'a' * 1000} … 1000 characters … {'b' * 1000}"
    assert escape_text("a" * 2000) == "a" * 2000
    assert len(escape_text("a" * 100_000)) < 2100


def test_joined() -> None:
    assert joined(["<", None, Html("<b>")], "&") == "&lt;&amp;<b>"
    assert joined([]) == EMPTY


def test_where_a_word_may_be_broken() -> None:
    assert breakable("/opt/rocm;a_b") == "/<wbr>opt/<wbr>rocm;<wbr>a_<wbr>b"
    assert breakable("say --gpu-x=a; (--b), --C, a--b --c_d") == (
        'say <span class="option">--gpu-x</span>=<wbr>a; (<span class="option">--b</span>), --C, a--b --c_<wbr>d'
    )
    assert breakable("a<b/") == "a&lt;b/"
