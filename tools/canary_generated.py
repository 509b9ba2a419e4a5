"""Prompts made from seeds: puzzles that take many steps of reasoning, and chats that mix two languages.

Every right answer is computed, by search where there is no formula; names and numbers are drawn from SHA-256.
"""

# ruff: noqa: E501 (a sentence is easier to check on one line)

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import permutations
from typing import Any, TypeAlias

from tools.canary_draws import draws, invented, number, pick, shuffled

Json: TypeAlias = dict[str, Any]
Draw: TypeAlias = Iterator[int]
Puzzle: TypeAlias = tuple[str, Fraction | str]

EACH = 8
"""Puzzles of one kind."""
REASONING_TOKENS = 2000
LANGUAGE_COUNT = 48
SESSIONS, SESSION_TOKENS = 12, 96
PASTED = (60, 75, 130, 180, 240, 270)
"""Lines that each turn of a session pastes: the prompt grows from 2,000 characters to 32,000."""
_ENDING = "Work it out step by step, then write one last line of the form `Answer: X`."


def reasoning_items(answer_regex: Callable[[Fraction], str]) -> Iterator[Json]:
    """Yield puzzles that take a page of reasoning, each with its one right answer."""
    for kind in (_recurrence, _divisors, _coins, _queue, _tanks, _workdays):
        for at in range(EACH):
            draw = draws(f"reasoning/{kind.__name__}/{at}")
            text, right = kind(draw)
            regex = rf"(?i)answer(?: is)?[^\w]{{0,8}}{right}\b" if isinstance(right, str) else answer_regex(right)
            messages = [{"role": "user", "content": f"{text} {_ENDING}"}]
            size = {"tier": "short" if len(messages[0]["content"]) < 600 else "medium"}  # as the other sets have it
            yield size | {
                "messages": messages, "max_tokens": REASONING_TOKENS, "thinking": True, "expect": {"regex": regex},
            }  # fmt: skip


def session_items() -> Iterator[Json]:
    """Yield the turns of sessions with an agent: files and outputs of commands are pasted, one number is asked for."""
    for session in range(SESSIONS):
        draw = draws(f"sessions/{session}")
        depot, used = f"{_name(draw)} {_name(draw)}", set[int]()
        messages = [{"role": "system", "content": "You keep the books of a depot. Answer in one short sentence."}]
        for turn, lines in enumerate(PASTED, start=1):
            rows = [(invented(draw), number(draw, 1, 40), _unused(draw, used)) for _ in range(lines)]
            item, shelf, count = rows[number(draw, 0, lines - 1)]
            used.add(count)
            listed = "\n".join(f"{name}, shelf {place}, {units} units" for name, place, units in rows)
            source = f"stock-{turn}.csv" if turn % 2 else f"the command `stock --list --part {turn}`"
            text = f"Depot {depot}, {source}:\n{listed}\nHow many units of {item} are on shelf {shelf} there?"
            messages = [*messages, {"role": "user", "content": text}]
            yield {
                "conversation": f"session-{session + 1:02d}", "turn": turn, "tier": "long", "messages": messages,
                "max_tokens": SESSION_TOKENS, "expect": {"regex": rf"\b{count}\b"},
            }  # fmt: skip
            messages = [*messages, {"role": "assistant", "content": f"There are {count} units of {item}."}]


def _unused(draw: Draw, used: set[int]) -> int:
    """Return a number of four digits that was not the answer of a turn before."""
    while (units := number(draw, 1000, 9999)) in used:
        pass
    return units


def _name(draw: Draw) -> str:
    return invented(draw).capitalize()


def _recurrence(draw: Draw) -> Puzzle:
    first, second, factor, minus = number(draw, 2, 9), number(draw, 2, 9), number(draw, 2, 3), number(draw, 1, 2)
    plus, modulus, steps = number(draw, 1, 7), number(draw, 11, 29), number(draw, 9, 12)
    terms = [first, second]
    while len(terms) < steps:
        terms.append((factor * terms[-1] - minus * terms[-2] + plus) % modulus)
    text = (
        f"In {_name(draw)}'s game the first two numbers are {first} and {second}. Each later number is {factor} times the "
        f"one before it, minus {minus} times the one before that, plus {plus}; then only the remainder of a division by "
        f"{modulus} is kept (it is never negative). Which is number {steps} of the game?"
    )
    return text, Fraction(terms[-1])


def _divisors(draw: Draw) -> Puzzle:
    low, high = number(draw, 20, 60), number(draw, 150, 240)
    by, or_by, never = number(draw, 3, 5), number(draw, 6, 8), number(draw, 9, 11)
    count = sum(1 for one in range(low, high + 1) if (one % by == 0 or one % or_by == 0) and one % never)
    text = (
        f"The lockers of {_name(draw)} station bear the numbers {low} to {high}, both included. A locker is blue if its "
        f"number is divisible by {by} or by {or_by}, but not if it is divisible by {never}. How many lockers are blue?"
    )
    return text, Fraction(count)


def _coins(draw: Draw) -> Puzzle:
    coins = sorted({1 + number(draw, 1, 3), 4 + number(draw, 1, 3), 9 + number(draw, 1, 4)})
    price = number(draw, 34, 52)
    ways = [1] + [0] * price
    for coin in coins:
        for at in range(coin, price + 1):
            ways[at] += ways[at - coin]
    listed = ", ".join(str(coin) for coin in coins[:-1]) + f" and {coins[-1]}"
    text = (
        f"The town of {_name(draw)} has coins of {listed} marks and as many of each as anyone wants. In how many ways can "
        f"one pay exactly {price} marks, if the order of the coins does not matter?"
    )
    return text, Fraction(ways[price])


def _queue(draw: Draw) -> Puzzle:
    people: list[str] = []
    while len(people) < 5:
        if (name := _name(draw)) not in people:
            people.append(name)
    right = [people[at] for at in shuffled(draw, range(5))]
    orders, clues = list(permutations(people)), list[str]()
    while len(orders) > 1:
        one, other = (right[at] for at in shuffled(draw, range(5))[:2])
        gap = abs(right.index(one) - right.index(other))
        if next(draw) % 2:
            clue = f"{one} stands {'before' if right.index(one) < right.index(other) else 'after'} {other}."
            keep = [
                two for two in orders if (two.index(one) < two.index(other)) == (right.index(one) < right.index(other))
            ]
        else:
            clue = (
                f"Between {one} and {other} there {'is' if gap == 2 else 'are'} exactly {gap - 1 or 'no'} other people."
            )
            clue = clue.replace("exactly no other", "no other").replace(
                "is exactly 1 other people", "is exactly 1 other person"
            )
            keep = [two for two in orders if abs(two.index(one) - two.index(other)) == gap]
        if len(keep) < len(orders):
            orders = keep
            clues.append(clue)
    place = number(draw, 2, 4)
    ordinal = {2: "second", 3: "third", 4: "fourth"}[place]
    text = (
        f"{', '.join(people[:-1])} and {people[-1]} wait in one line. {' '.join(clues)} Who is {ordinal} in the line?"
    )
    return text, right[place - 1]


def _tanks(draw: Draw) -> Puzzle:
    fill, drain = number(draw, 12, 25), number(draw, 3, 9)
    first, pause, second = number(draw, 8, 20), number(draw, 5, 15), number(draw, 10, 25)
    start = number(draw, 200, 400)
    level = start + first * (fill - drain) - pause * drain + second * (2 * fill - drain)
    text = (
        f"A tank in {_name(draw)} holds {start} litres. All the time {drain} litres a minute run out of it. For {first} "
        f"minutes one pump adds {fill} litres a minute; then no pump runs for {pause} minutes; then two such pumps run for "
        f"{second} minutes. How many litres are in the tank at the end?"
    )
    return text, Fraction(level)


def _workdays(draw: Draw) -> Puzzle:
    days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    start, needed, closed = number(draw, 0, 4), number(draw, 17, 33), number(draw, 0, 4)
    at, worked = start, 0
    while True:
        worked += at % 7 < 5 and at % 7 != closed
        if worked == needed:
            break
        at += 1
    text = (
        f"The bindery of {_name(draw)} needs {needed} working days for an order. It works from Monday to Friday, but never on "
        f"a {days[closed]}. It begins on a {days[start]}, which counts if it works on that day. On which day of the week is "
        "the order done?"
    )
    return text, days[at % 7]


FACTS: dict[str, tuple[str, ...]] = {
    # Two products and a difference; or a sum of three: n, m and k are drawn.
    "German": ("Heute kamen {n} Kisten mit je {m} Flaschen an, {k} Flaschen waren zerbrochen.", "Im Lager liegen {n} Stapel zu je {m} Kacheln, {k} Kacheln haben einen Sprung."),
    "French": ("Ce matin, {n} caisses de {m} bouteilles sont arrivées, mais {k} bouteilles étaient cassées.", "Nous avons {n} piles de {m} carreaux, dont {k} carreaux sont fendus."),
    "Spanish": ("Hoy llegaron {n} cajas con {m} botellas cada una, y {k} botellas estaban rotas.", "En el almacén hay {n} montones de {m} azulejos, y {k} azulejos están rajados."),
    "Italian": ("Stamattina sono arrivate {n} casse da {m} bottiglie, ma {k} bottiglie erano rotte.", "In magazzino ci sono {n} pile da {m} piastrelle, e {k} piastrelle sono crepate."),
    "Portuguese": ("Hoje chegaram {n} caixas com {m} garrafas cada, e {k} garrafas estavam partidas.", "No armazém há {n} pilhas de {m} azulejos, e {k} azulejos estão rachados."),
    "Dutch": ("Vandaag kwamen er {n} kratten met elk {m} flessen aan, en {k} flessen waren kapot.", "In het magazijn liggen {n} stapels van {m} tegels, en {k} tegels zijn gebarsten."),
}  # fmt: skip
"""A fact in one language, the question in another: people who work in several languages write like this."""
QUESTIONS = {
    "English": "How many are still whole? Reply in English, in one sentence with the number in digits.",
    "German": "Wie viele sind noch ganz? Antworte auf Deutsch in einem Satz, mit der Zahl in Ziffern.",
    "French": "Combien sont encore intactes ? Réponds en français, en une phrase, avec le nombre en chiffres.",
    "Spanish": "¿Cuántas siguen enteras? Responde en español, en una frase, con el número en cifras.",
}


def language_items() -> Iterator[Json]:
    """Yield chats whose facts are in one language and whose question is in another, with the number that is right."""
    pairs = [(told, asked) for told in FACTS for asked in QUESTIONS if told != asked]
    for at in range(LANGUAGE_COUNT):
        draw = draws(f"languages/{at}")
        told, asked = pairs[at % len(pairs)]
        many, each, broken = number(draw, 4, 19), number(draw, 6, 24), number(draw, 3, 20)
        fact = pick(draw, FACTS[told]).format(n=many, m=each, k=broken)
        content = (
            f"{_name(draw)} {_name(draw)}, {number(draw, 6, 18)}:{number(draw, 10, 59)}: {fact} {QUESTIONS[asked]}"
        )
        right = rf"(?<![\d.,]){many * each - broken}(?![\d]|[.,]\d)"
        yield {
            "tier": "short", "messages": [{"role": "user", "content": content}], "max_tokens": 96,
            "expect": {"regex": right},
        }  # fmt: skip
