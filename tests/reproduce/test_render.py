"""Markdown, LaTeX and HTML of a table, character by character, with text that each of them must escape."""

import re

import pytest

from elfnet.report.html import Heading
from elfnet.reproduce.layout import Document, Grid
from elfnet.reproduce.render import latex_text, markdown_text, to_html, to_latex, to_markdown

DOCUMENT = Document(
    "A & B_1",
    ["100 % <b>\\x</b>", "a|b * c"],
    [
        Grid(
            "τ | {d}",
            [Heading("system", numeric=False), Heading("ours", "col_1"), Heading("paper", "col_1")],
            [["CE", "70.1 ± 0.3", "70.4†*"], ["<script>", "not run", "–"]],
            frozenset({1}),
        )
    ],
)

MARKDOWN = r"""<!-- Written by 'elfnet reproduce' from the records of the runs; do not edit. -->

# A &amp; B\_1

- 100 % \<b\>\\x\</b\>
- a\|b \* c

## τ \| \{d\}

| system | col\_1: ours | col\_1: paper |
| --- | ---: | ---: |
| CE | 70.1 ± 0.3 | 70.4†\* |
| *not in the paper's table:* |  |  |
| \<script\> | not run | – |
"""

LATEX = r"""% Written by 'elfnet reproduce' from the records of the runs; do not edit.
% Needs \usepackage{booktabs,adjustbox} and, for the quotation marks, \usepackage[T1]{fontenc}.
\subsection*{A \& B\_1}
\begin{itemize}
  \item 100 \% $<$b$>$\textbackslash{}x$<$/b$>$
  \item a$|$b * c
\end{itemize}

\begin{table}[htbp]
\footnotesize\setlength{\tabcolsep}{3pt}
\caption{$\tau$ $|$ \{d\}}
\begin{adjustbox}{max totalsize={\linewidth}{0.9\textheight},center}
\begin{tabular}{lrr}
\toprule
 & \multicolumn{2}{c}{col\_1} \\
\cmidrule(lr){2-3}
system & ours & paper \\
\midrule
CE & 70.1 $\pm$ 0.3 & 70.4$^\dagger$* \\
\midrule
$<$script$>$ & not run & -- \\
\bottomrule
\end{tabular}
\end{adjustbox}
\end{table}
"""

HTML = (
    '<h1>A &amp; B_1</h1></header><ul class="note"><li>100 % &lt;b&gt;\\x&lt;/b&gt;</li><li>a|b * c</li></ul>'
    '<section><h2>τ | {d}</h2><div class="table"><div class="scroll" tabindex="0" role="region" aria-label="table">'
    '<table><thead><tr><td colspan="1"></td><th colspan="2" scope="colgroup" class="group">col_1</th></tr>'
    '<tr><th scope="col">system</th><th scope="col" class="number">ours</th>'
    '<th scope="col" class="number">paper</th></tr></thead><tbody>'
    '<tr><th scope="row">CE</th><td class="number">70.1 ± 0.3</td><td class="number">70.4†*</td></tr>'
    '<tr class="emphasised"><th scope="row">&lt;script&gt;</th><td class="number">not run</td>'
    '<td class="number">–</td></tr></tbody></table></div></div></section>'
)


def test_markdown() -> None:
    assert to_markdown(DOCUMENT) == MARKDOWN


def test_latex() -> None:
    assert to_latex(DOCUMENT) == LATEX


def test_html() -> None:
    page = to_html(DOCUMENT)
    assert HTML in re.sub(r">\n+<", "><", page)
    assert page.startswith("<!DOCTYPE html>\n<html lang=")
    # It loads nothing, and it has a dark mode.
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    assert "prefers-color-scheme: dark" in page
    assert "<script>" not in page


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a_b^2", r"a\_b\textasciicircum{}2"),
        ("~#$", r"\textasciitilde{}\#\$"),
        ("x\x00y\nz", "x?y z"),
        ("×−", r"$\times$$-$"),
    ],
)
def test_latex_text(text: str, written: str) -> None:
    assert latex_text(text) == written


@pytest.mark.parametrize(
    ("text", "written"), [("`a`", r"\`a\`"), ("[x](y)", r"\[x\](y)"), ("# n\nm", r"\# n m"), ("&lt;", "&amp;lt;")]
)
def test_markdown_text(text: str, written: str) -> None:
    assert markdown_text(text) == written
