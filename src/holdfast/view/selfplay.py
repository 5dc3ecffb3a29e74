"""The self-play section of the report: what the measurements allow to be said, in words and numbers."""

from __future__ import annotations

from holdfast.selfplay.records import Analysis, Exploitability, Rate
from holdfast.view.files import RunFiles
from holdfast.view.numbers import short
from holdfast.view.page import Cell, card, paragraph, table
from holdfast.view.plots_pursuit import summary


def selfplay_parts(files: RunFiles) -> list[str]:
    """Return cards, the verdict and the table of best responses; nothing for other runs."""
    found = summary(files)
    parts = []
    if found.analysis is not None:
        parts.append(_cards(found.analysis, found.exploitability))
    if found.verdict is not None:
        level = found.verdict.level
        name = "Undecided" if level == "undecided" else level
        words = f"{name} at epsilon {found.verdict.epsilon:g}: {found.verdict.words}."
        parts.append(paragraph(words))
    parts.append(_responses(found.exploitability))
    return parts


def _cards(found: Analysis, measured: tuple[Exploitability, ...]) -> str:
    low, high = found.band
    cards = [
        card("SR_P, last evaluation", f"{found.final.value:.3f}", _ends(found.final)),
        card(
            "Evaluations outside the band",
            str(len(found.outside)),
            f"[{low:g}, {high:g}], after {short(found.after)} steps",
        ),
        card(
            "NE gap, last evaluation",
            f"{found.final_gap.value:.3f}",
            f"{_ends(found.final_gap)}; {found.gap_trend.words}; mean {found.mean_gap:.2f}",
        ),
        card("Course", found.oscillation, _course(found)),
    ]
    if measured:
        last = measured[-1]
        cards.append(
            card(
                "Exploitability",
                f"{last.exploitability.value:.3f}",
                f"{_ends(last.exploitability)}; value in [{last.value_low:.2f}, {last.value_high:.2f}]",
            )
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def _course(found: Analysis) -> str:
    words = [f"{found.swings} certain changes of the winner"]
    if found.period_env_steps is not None:
        words.append(f"period {short(found.period_env_steps)} steps")
    if found.dominant:
        words.append(f"the {found.dominant} dominated {found.dominance} evaluations in a row")
    return "; ".join(words)


def _responses(measured: tuple[Exploitability, ...]) -> str:
    rows = []
    for one in measured:
        row = [
            Cell(str(one.update), right=True),
            Cell(short(one.env_steps), right=True),
            _rate(one.incumbent),
        ]
        for response in (one.pursuer, one.evader):
            trained = short(response.trained_env_steps)
            about = (
                f"best of {response.tried}, after {short(response.env_steps)} of {trained} steps"
            )
            row += [_rate(response.sr_p), Cell(f"{response.gain.value:.3f}", about, True)]
        rows.append([*row, _rate(one.exploitability)])
    head = [
        "update",
        "env steps",
        "the pair",
        "best pursuer",
        "its gain",
        "best evader",
        "its gain",
    ]
    return table([*head, "exploitability"], rows)


def _rate(rate: Rate) -> Cell:
    return Cell(f"{rate.value:.3f}", _ends(rate), True)


def _ends(rate: Rate) -> str:
    return f"[{rate.low:.3f}, {rate.high:.3f}]"
