"""Numbers of persons and accounts in a text: IBANs, cards, telephone and national numbers (extra `canaries`)."""

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any

import phonenumbers
from stdnum import iban, luhn

from gatekeeper.canaries.secrets_in_text import QUOTE, Span

_IBAN = re.compile(r"(?i)(?<![A-Z0-9])(?=([A-Z]{2}[0-9]{2}(?:[ .-]?[A-Z0-9]){11,30}))")
_IBAN_LENGTHS = range(34, 14, -1)
_DIGITS = re.compile(r"(?<![A-Za-z0-9])(?<![0-9][.,])[0-9]+(?:[ -]{1,2}[0-9]+){0,99}(?![A-Za-z0-9]|[.][0-9])")
_CARDS = re.compile(r"4(?:[0-9]{12}|[0-9]{15}|[0-9]{18})|5[1-5][0-9]{14}|2[2-7][0-9]{14}|3[47][0-9]{13}"
                    r"|3[0689][0-9]{12}|35[0-9]{14}|6[0-9]{15,18}|(?:50|5[6-8])[0-9]{14,17}|8[12][0-9]{14}"
                    r"|(?:50(?:18|20|38)|5893|6304|6390|67(?:[0-57-9][0-9]|6[1-79]))[0-9]{8,15}"
                    r"|220[0-4][0-9]{12,15}|9792[0-9]{12}")  # fmt: skip
"""Lengths and first digits of the payment networks, ISO/IEC 7812."""
_CARD_LENGTHS = range(12, 20)

_PHONE = re.compile(
    r"(?<![A-Za-z0-9+])(?:(?=\(?\+)|(?<![0-9][.,:/])(?<![A-Za-z0-9]-)(?<![$€£#] )|"
    r"(?<=,)(?=[0-9 ]{8,20}(?:[,;\n]|$)))"
    r"(?:\+|\(\+?|)[0-9](?:[ ./\u2044-]{0,3}\(?[0-9]\)?|\)[ ./-]{0,2}[0-9]){5,33}(?![A-Za-z0-9]|[.:][0-9])"
)
_DATE_OR_FRACTION = re.compile(
    r"0[.][0-9]+\Z|"
    r"(?:[0-3]?[0-9]([./ -])[01]?[0-9]\1(?:19|20)[0-9]{2}|(?:1[89]|20)[0-9]{2}([./ -])[01][0-9]\2[0-3][0-9])(?![0-9])"
)
_CALLED_PHONE = re.compile(
    r"(?i)(?:(?:(?<![A-Za-z0-9\u00c0-\u024f])|(?-i:(?<=[a-z])(?=[A-Z])))(?:tele(?:phone|fon\w*|foon|phonenumber)?|t[eé]l[eé]?(?:phone|fono?|fax)?|phone\w*|(?:tele)?fax|"
    r"mobile?\w*|"
    r"msisdn|handy\w*|natel|cell\w*|m[oó]vil|celular|portable|gsm|whatsapp|signal|sms|call|dial|ring|ruf\w*|anruf\w*|contact|"
    r"puhelin|tlf|tel[eé]fono?|тел\w*|rückruf\w*|hotline)|[☎📞📱☏]|電話|电话|手机|전화)[^0-9+(\n]{0,30}\Z"
)
_BOOK = re.compile(r"(?i)(?:is[bs]n(?:-1[03])?|doi)[: ]{0,2}\Z")
_TRUNK = "0"
_PHONE_DIGITS = 9
"""A national number without a word before it that calls it a telephone has at least so many digits."""
_PHONE_LONGEST = 13

_NATIONAL: tuple[tuple[str, str], ...] = (
    # Without a word before them: their form or two check digits tell them from other numbers.
    ("ar.cuit", r"[0-9]{2}-[0-9]{8}-[0-9]|(?:2[03457]|3[034])[0-9]{9}"),
    ("be.nn", r"[0-9]{2} [0-9]{2} [0-9]{2} [0-9]{3} [0-9]{2}"),
    ("be.nn", r"[0-9]{2}\.[0-9]{2}\.[0-9]{2}-[0-9]{3}\.[0-9]{2}|[0-9]{11}"),
    ("br.cpf", r"[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}|[0-9]{11}"),
    ("br.cnpj", r"[0-9]{2}\.[0-9]{3}\.[0-9]{3}/[0-9]{4}-[0-9]{2}|[0-9]{14}"),
    ("ca.sin", r"[0-9]{3}([ -])[0-9]{3}\1[0-9]{3}"),
    ("ch.ssn", r"756[. ]?[0-9]{4}[. ]?[0-9]{4}[. ]?[0-9]{2}"),
    ("ch.uid", r"CHE[ -]?[0-9]{3}[. ]?[0-9]{3}[. ]?[0-9]{3}"),
    ("ch.vat", r"CHE[ -]?[0-9]{3}[. ]?[0-9]{3}[. ]?[0-9]{3} ?(?:MWST|TVA|IVA|TPV)"),
    ("cl.rut", r"[0-9]{1,2}\.[0-9]{3}\.[0-9]{3}-[0-9K]|[0-9]{7,8}-[0-9K]"),
    ("cn.ric", r"[0-9]{17}[0-9X]"),
    ("cz.rc", r"[0-9]{6}/[0-9]{3,4}|(?!1[5-9])[0-9]{10}"),
    ("de.idnr", r"[1-9][0-9] [0-9]{3} [0-9]{3} [0-9]{3}|[1-9][0-9]{10}"),
    ("dk.cpr", r"[0-9]{6}-[0-9]{4}"),
    ("do.cedula", r"[0-9]{3}-[0-9]{7}-[0-9]"),
    ("ee.ik", r"[1-8][0-9]{10}"),
    ("es.dni", r"[0-9]{8}[ -]?[A-Z]|[0-9]{2}\.[0-9]{3}\.[0-9]{3}-?[A-Z]"),
    ("es.nie", r"[XYZ][ -]?[0-9]{7}[ -]?[A-Z]"),
    ("es.cif", r"[ABCDEFGHJNPQRSUVW][ -]?[0-9]{7}[ -]?[0-9A-J]"),
    ("eu.vat", r"[A-Z]{2} ?[0-9][0-9A-Z. -]{6,13}[0-9A-Z]|[A-Z]{2} ?[A-Z][0-9. -]{7,11}[0-9A-Z]?"),
    ("fi.hetu", r"[0-9]{6}[-+A-FU-Y][0-9]{3}[0-9A-Y]"),
    ("fr.nir", r"[12] ?[0-9]{2} ?[0-9]{2} ?[0-9][0-9AB] ?[0-9]{3} ?[0-9]{3} ?[0-9]{2}"),
    ("gr.amka", r"[0-9]{11}"),
    ("in_.aadhaar", r"[2-9][0-9]{3}([ -]?)[0-9]{4}\1[0-9]{4}"),
    ("in_.pan", r"[A-Z]{3}[ABCFGHJLPT][A-Z][0-9]{4}[A-Z]"),
    ("ie.pps", r"[0-9]{7}[A-W][A-IW]?"),
    ("it.codicefiscale", r"[A-Z]{3} ?[A-Z]{3} ?[0-9LMNP-V]{2}[A-EHLMPR-T][0-9LMNP-V]{2} ?[A-Z][0-9LMNP-V]{3}[A-Z]"),
    ("kr.rrn", r"[0-9]{6}-?[0-9]{7}"),
    ("lt.asmens", r"[1-6][0-9]{10}"),
    ("lv.pvn", r"[0-9]{6}-?[0-9]{5}"),
    ("mx.curp", r"[A-Z]{4}[0-9]{6}[HMX][A-Z]{5}[0-9A-Z][0-9]"),
    ("mx.rfc", r"[A-ZÑ&]{4}[ -]?[0-9]{6}[ -]?[0-9A-Z]{3}"),
    ("my.nric", r"[0-9]{6}-[0-9]{2}-[0-9]{4}"),
    ("no.fodselsnummer", r"[0-9]{6}[ -]?[0-9]{5}"),
    ("pk.cnic", r"[0-9]{5}-[0-9]{7}-[0-9]"),
    ("pl.nip", r"[0-9]{3}-[0-9]{3}-[0-9]{2}-[0-9]{2}|[0-9]{3}-[0-9]{2}-[0-9]{2}-[0-9]{3}"),
    ("pl.pesel", r"[0-9]{11}"),
    ("pt.cc", r"[0-9]{8} ?[0-9] ?[0-9A-Z]{2}[0-9]"),
    ("ro.cnp", r"[1-9][0-9]{12}"),
    ("se.personnummer", r"(?:[0-9]{2})?[0-9]{6}[-+][0-9]{4}|(?:19|20)[0-9]{10}|(?!1[5-9])[0-9]{10}"),
    ("si.emso", r"[0-9]{13}"),
    ("th.pin", r"[0-9]-[0-9]{4}-[0-9]{5}-[0-9]{2}-[0-9]"),
    ("tr.tckimlik", r"[1-9][0-9]{10}"),
    ("us.itin", r"9[0-9]{2}-[0-9]{2}-[0-9]{4}"),
    ("us.ssn", r"[0-9]{3}([- ])[0-9]{2}\1[0-9]{4}"),
    ("za.idnr", r"[0-9]{6} ?[0-9]{4} ?[0-9]{2} ?[0-9]"),
)  # fmt: skip
"""Modules of python-stdnum, which checks the digits, and the form that each number has in a text.

Numbers of other countries, and of other forms, are found where they are called by their name: _CALLED_NUMBER."""

_UNCHECKED = re.compile(
    r"(?P<NINO>(?i:(?<![A-Z0-9])(?!BG|GB|KN|NK|NT|TN|"
    r"ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]([ -]?)[0-9]{2}\2[0-9]{2}\2[0-9]{2}"
    r"\2[A-D](?![A-Z0-9])))"  # the United Kingdom's has no check digit
    r"|(?P<SG>(?<![A-Z0-9])[STFGM][0-9]{7}[A-Z])(?![A-Z0-9])"  # Singapore: NRIC and FIN
    r"|(?P<TW>(?<![A-Z0-9])[A-Z][12][0-9]{8})(?![A-Z0-9])"  # Taiwan
)
_PENSION = re.compile(r"(?i)(?<![A-Z0-9])[0-9]{2}[ .-]?[0-9]{6}[ .-]?[A-Z][ .-]?[0-9]{3}(?![A-Z0-9])")
_PENSION_WEIGHTS = (2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1)
"""Of the check digit of a German Versicherungsnummer, VKVV § 4."""

_ACRONYMS = (
    "CPR|RFC|NIN|PPS|CMND|EIN|NIR|AHV|AVS|SVNR|SV|RVNR|NINO|NI|SSN|SIN|ITIN|TIN|BSN|NIF|NIE|DNI|CPF|CNPJ|CURP|"
    "PESEL|NIP|NHS|NRIC|PAN|TFN|IRD|EGN|OIB|CNP|CNIC|JMBG|EMSO|AMKA|AFM|INN|SNILS|PPSN?|NISS|INSZ|RRN|CUIL|CUIT|RUT|"
    "NPI|UTR|BLZ|BSB|CLABE"
)
_CALLED_NUMBER = re.compile(
    r"(?:(?<![A-Za-z0-9])|(?<=[a-z])(?=[A-Z]))(?:(?:" + _ACRONYMS + r")|"
    r"(?i:" + _ACRONYMS + r")(?=(?i:[ _-]?(?:nr|no|num\w*|id))?(?:" + QUOTE + r"|\s?[:=>]))|"
    r"P\.? ?IVA|ИНН|СНИЛС|ЕГН|マイナンバー|身份证\w{0,2}|주민등록번호|(?i:"
    r"ahv|avs|ssn|svnr|cpf|cpr|dni|bsn|nhs|pesel|cnic|nric|insz|partita iva|personnr|numer dowodu|"
    r"c[eé]dula|mykad|citizen|id[ _-]?(?=n)|"
    r"idnr|steuer-?id|ust-?id(?:nr)?|aadhaar|medicare|teudat zehut|my number|codice[ _-]?fiscale|personnummer|"
    r"fødselsnummer|henkilötunnus|rodné číslo|rijksregister\w*|isikukood|asmens kodas|personas kods|kennitala|"
    r"(?:social|national)[ _-]?(?:security|insurance|identity|id)|(?:sozial|renten|kranken)?versich?erungs?|"
    r"insurance[ _-]?(?=n)|(?:kranken)?versicherten|"
    r"s[eé]curit[eé] sociale|seguridad social|tax(?:payer)?|steuer(?:identifikations)?|umsatzsteuer|fiscal|tributaria|"
    r"vat|"
    r"passport|reisepass|passeport|passaporto|pasaporte|paspoort|paszport\w*|pass|(?:personal)?ausweis|identit[yé]|"
    r"identitätskarte|carte d'identit[eé]|carta d'identità|id[ _-]?card|"
    r"driv(?:er'?s?|ing)[ _-]?licen[cs]e|f(?:ü|ue)hrer(?:schein|ausweis)|"
    r"permis de conduire|residence permit|aufenthaltstitel|"
    r"(?:bank[ _]?)?account|routing|sort[ _-]?code|konto|kto|cuenta|compte|rekening))"
    r"(?:[ ._-]{0,2}(?i:id|no|nr|num(?:ber|mer|[eé]ro|ero)?|nummer|code|card|n[°º]?|#)){0,2}(?![A-Za-z])"
    + QUOTE + r"?[.:#>]{0,2}\s{0,2}(?:(?i:is|ist|lautet|est|es|è|:|=|#)\s{0,3}){0,2}" + QUOTE + r"?"
    r"(?P<value>(?=[A-Za-z]{0,6}[0-9]|[A-Z]{1,3}[ ./-][0-9])"
    r"(?=(?:[ ./-]?[A-Za-z]{0,6}[ ./-]?[0-9]){6})[A-Za-z0-9](?:[ ./-]?[A-Za-z0-9]){5,24}"
    r"|(?=[A-Z]{0,8}[0-9][A-Z]{0,8}[0-9])[A-Z0-9]{7,12}(?![A-Za-z0-9]))"
)  # fmt: skip
"""A number of any country where a word calls it that of a person, a document or an account."""
_TAIL_WORD = re.compile(r"(?:[ ./-][A-Za-z]{2,}|[ ][A-Za-z])+$")


def personal_numbers(text: str) -> Iterator[Span]:
    """Yield the numbers of persons and accounts in *text*; spans may overlap."""
    if not any(digit in text for digit in "0123456789"):
        return
    yield from _ibans(text)
    yield from _cards(text)
    yield from _national(text)
    yield from _phones(text)


def _ibans(text: str) -> Iterator[Span]:
    for match in _IBAN.finditer(text):
        places = [place for place, char in enumerate(match[1]) if char.isalnum()]
        for length in _IBAN_LENGTHS:
            if length > len(places):
                continue
            stop = match.start() + places[length - 1] + 1
            ends = re.match("[A-Za-z0-9]", text[stop : stop + 1]) is None
            if ends and iban.is_valid(text[match.start() : stop], check_country=False):
                yield match.start(), stop, "IBAN"
                break


def _cards(text: str) -> Iterator[Span]:
    """Yield the cards: groups of digits that follow each other, of which the first or the last may not belong to it."""
    for match in _DIGITS.finditer(text):
        groups = list(re.finditer("[0-9]+", match[0]))
        first = 0
        while first < len(groups):
            digits, last = "", first
            while last < len(groups) and len(digits := digits + groups[last][0]) <= _CARD_LENGTHS[-1]:
                last += 1
                if len(digits) in _CARD_LENGTHS and _CARDS.fullmatch(digits) and luhn.is_valid(digits):
                    yield match.start() + groups[first].start(), match.start() + groups[last - 1].end(), "CREDIT_CARD"
                    first = last - 1
                    break
            first += 1


def _national(text: str) -> Iterator[Span]:
    for module, pattern in _national_patterns():
        for match in pattern.finditer(text):
            if _is_valid(module, match[0]):
                yield *match.span(), "NATIONAL_ID"
    for match in _UNCHECKED.finditer(text):
        yield *match.span(), "NATIONAL_ID"
    for match in _PENSION.finditer(text):
        if _is_pension_number(re.sub(r"\W", "", match[0]).upper()):
            yield *match.span(), "NATIONAL_ID"
    for match in _CALLED_NUMBER.finditer(text):
        start, stop = match.span("value")
        value = _TAIL_WORD.sub("", match["value"])
        if value and not _DATE_OR_FRACTION.fullmatch(value):
            yield start, stop - len(match["value"]) + len(value), "NATIONAL_ID"


@lru_cache(maxsize=1)
def _national_patterns() -> list[tuple[Any, re.Pattern[str]]]:
    return [
        (
            import_module(f"stdnum.{module}"),
            re.compile(rf"(?<![A-Za-z0-9])(?<![0-9][.-])(?:{form})(?![A-Za-z0-9]|[.-][0-9])"),
        )
        for module, form in _NATIONAL
    ]


def _is_valid(module: Any, number: str) -> bool:
    try:
        return bool(module.is_valid(number))
    except Exception:  # noqa: BLE001 (a form that its own check does not foresee is not that number)
        return False


def _is_pension_number(number: str) -> bool:
    """Return whether the check digit of a German Versicherungsnummer, its letter as two digits, is right."""
    digits = number[:8] + f"{ord(number[8]) - 64:02d}" + number[9:11]
    products = (int(digit) * weight for digit, weight in zip(digits, _PENSION_WEIGHTS, strict=True))
    return sum(sum(map(int, str(product))) for product in products) % 10 == int(number[11])


def _phones(text: str) -> Iterator[Span]:
    stop = 0
    while match := _PHONE.search(text, stop):
        start, stop = match.span()
        called = _CALLED_PHONE.search(text, max(0, start - 45), start) is not None
        if _BOOK.search(text, max(0, start - 10), start):
            continue
        for written in _wholes(match[0]):
            if not _DATE_OR_FRACTION.match(written) and _is_phone(written, called=called):
                stop = start + len(written)
                yield start, stop, "PHONE"
                break


def _wholes(written: str) -> Iterator[str]:
    """Yield what may be a telephone number: all of *written*; where too long, its first groups."""
    yield written
    if sum(map(str.isdigit, written)) > _PHONE_LONGEST:
        yield from (written[: gap.start()] for gap in re.finditer(r"[^0-9]+(?=[0-9(])", written))


@lru_cache(maxsize=65536)
def _is_phone(written: str, *, called: bool) -> bool:
    """Return whether a number is one of any country's: *called* so by the word before it, or by its own form."""
    digits = re.sub(r"[^0-9]", "", written)
    if written.lstrip("(").startswith("+"):
        return _is_number(f"+{digits}") or _is_number("+" + digits.replace("0", "", 1))
    if digits.startswith("00"):
        return _is_number(f"+{digits[2:]}")
    if called:
        return any(_is_number(written, region) for region in _regions()[1])
    if not digits.startswith(_TRUNK) or len(digits) < _PHONE_DIGITS or digits in "0123456789":
        return False
    groups = re.findall("[0-9]+", written)
    if len(groups) > 5:
        return False
    return any(_is_number(written, region) for region in _regions()[0])


def _is_number(number: str, region: str | None = None) -> bool:
    """Return whether a number is valid in a region; without one, whether it is possible with its own country code."""
    try:
        parsed = phonenumbers.parse(number, region)
    except phonenumbers.NumberParseException:
        return False
    return phonenumbers.is_possible_number(parsed) if region is None else phonenumbers.is_valid_number(parsed)


@lru_cache(maxsize=1)
def _regions() -> tuple[list[str], list[str]]:
    """Return the regions where national numbers begin with 0, and all of them."""
    every = sorted(phonenumbers.SUPPORTED_REGIONS)
    metadata = {region: phonenumbers.PhoneMetadata.metadata_for_region(region) for region in every}
    trunk = [
        region
        for region, region_metadata in metadata.items()
        if region_metadata is not None and (region_metadata.national_prefix or "").startswith(_TRUNK)
    ]
    return [*trunk, "IT", "CI"], every  # of these two the 0 is a part of the number
