"""Keys, passwords and tokens in a text: by the name they are given, or by where they stand."""

# ruff: noqa: ISC004 (the patterns of these tables are longer than a line)

import base64
import binascii
import re
from collections.abc import Iterator

from gatekeeper.canaries.service_keys import SERVICE_KEY
from gatekeeper.core.hidden_keys import SECRET_NAME, secret_parts

Span = tuple[int, int, str]
"""Start and stop of a value in its text, and its kind."""

# What `same_length` of personal_data.py writes for quotes that are escaped with backslashes: they pair by their depth.
QUOTE = r"(?:\ue000*[\ue001-\ue0ff]|[\"'`])"
_NO_QUOTE = r"\"'`\ue000-\ue0ff"

_PLACES: tuple[tuple[str, str], ...] = (
    # PEM and PuTTY, also as base64 (a Kubernetes secret) or without its end
    ("PRIVATE_KEY", r"(?s)(?P<value>-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}.*?"
     r"(?:-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|\Z))"),
    ("PRIVATE_KEY", r"(?s)Private-Lines: ?[0-9]+\s+(?P<value>.{20,5000}?)(?=Private-MAC|\Z)"),
    ("PRIVATE_KEY", r"(?P<value>LS0tLS[1B]CRUdJTi(?=[A-Za-z0-9+/\s]{0,80}(?:UFJJVkFURSBLRVk|QUklWQVRFIEtFW|"
     r"BSSVZBVEUgS0VZ|UFJJVkFURS|QUklWQVRF|BSSVZBVE))"
     r"(?:[A-Za-z0-9+/=]|\s(?=[ \t]*[A-Za-z0-9+/]{16}))+)"),
    # the user and password of an address, of a command and of a file of such
    ("PASSWORD", r"(?i)(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{1,30}://(?P<value>[^\s/?#@:<>{}" + _NO_QUOTE
     + r"]{0,200}:[^\s<>{}" + _NO_QUOTE + r"]{1,300})@(?=[\w\[.-])"),
    ("PASSWORD", r"(?i)(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{1,30}://"
     r"(?P<value>(?=[^\s/@]{0,60}[0-9])[\w.~%+-]{16,})@(?=[\w\[])"),
    ("PASSWORD", r"(?:\bcurl|\bhttps?|\bwget|\bftp|\bsvn)\b[^\n]{0,400}?\s(?:-u|--user|-U|--proxy-user|-a|"
     r"--auth)[ =]?" + QUOTE
     + r"?[^\s:" + _NO_QUOTE + r"]{0,100}:(?P<value>[^\s" + _NO_QUOTE + r"]+)"),
    ("PASSWORD", r"\b(?:sshpass\s+-p|mysql\w*\b[^\n|;]{0,200}\s-p|redis-cli\b[^\n|;]{0,200}\s-a\s|"
     r"docker\s+login\b[^\n|;]{0,200}\s-p\s|mongo\w*\b[^\n|;]{0,200}\s-p\s|sqlcmd\b[^\n|;]{0,200}\s-P\s|"
     r"smbclient\b[^\n|;]{0,200}%|az\s+login\b[^\n|;]{0,200}\s-p\s|ldap\w+\b[^\n|;]{0,200}\s-w\s|"
     r"ssh-keygen\b[^\n|;]{0,200}\s-[NP]\s|openssl\b[^\n|;]{0,200}\s(?:-k\s|-pass(?:in|out)?\s+pass:)|"
     r"keytool\b[^\n|;]{0,200}\s-(?:store|key)pass\s|htpasswd\s+-\w*b\w*\s+\S+\s+\S+\s|"
     r"(?:un)?zip\b[^\n|;]{0,200}\s-P\s|7z\w?\b[^\n|;]{0,200}\s-p|unrar\b[^\n|;]{0,200}\s-p|"
     r"net\s+use\b[^\n|;]{0,200}/user:\S+\s|kinit\b[^\n|;]{0,200}<<<|nmcli\b[^\n|;]{0,200}\spassword\s)"
     r"\s{0,2}" + QUOTE + r"?(?P<value>[^\s" + _NO_QUOTE + r"]{3,})"),
    ("PASSWORD", r"(?i)\bjdbc:oracle:\w+:(?P<value>[^\s/@]{1,80}/[^\s@]{1,80})@"),
    ("PASSWORD", r"(?i)\blogin\s+\S{1,100}\s+password\s+(?P<value>\S+)"),
    ("PASSWORD", r"(?m)^[\w.*-]+:(?:[0-9]{2,5}|\*):[\w*-]+:[\w*-]+:(?P<value>\S{4,})$"),
    ("PASSWORD", r"\becho\s+(?:-n\s+)?" + QUOTE + r"?(?P<value>[^\s|$" + _NO_QUOTE + r"]{3,})" + QUOTE
     + r"?\s*\|\s*(?:sudo\s+(?:-\w+\s+)*-S|docker\s+login|passwd|kinit)\b"),
    ("PASSWORD", r"\b(?:IDENTIFIED\s+(?:WITH\s+\w+\s+)?BY\s+" + QUOTE + r"?|identified by " + QUOTE
     + r")(?P<value>[^\s;" + _NO_QUOTE + r"]{3,})"),
    # headers
    ("AUTHORIZATION", r"(?i)\bauthorization" + QUOTE + r"?[\])]?\s{0,3}(?:[:=,]|=>)\\?\s{0,3}f?" + QUOTE + r"?"
     r"(?:digest|aws4-[\w-]+|hawk|oauth|mac|signature)\s+(?P<value>[^\n\ue000-\ue0ff]{8,})"),
    ("AUTHORIZATION", r"(?i)\bauthorization" + QUOTE + r"?[\])]?\s{0,3}(?:[:=,]|=>)\\?\s{0,3}f?" + QUOTE + r"?"
     r"(?:[a-z][\w-]{2,24}\\?\s+(?:(?:token|api_?key|key)=)?" + QUOTE + r"?|(?=[^\s" + _NO_QUOTE + r"]{0,99}[0-9]))"
     r"(?P<value>(?=[^\s" + _NO_QUOTE + r"]{0,99}[0-9])[^\s,;<>${}()" + _NO_QUOTE + r"]{6,}+|"
     r"[^\s,;<>${}()" + _NO_QUOTE + r"]{6,}+(?! ?[a-z]))(?!\()"),
    ("AUTHORIZATION", r"(?i)\bbearer\s+(?P<value>(?=[\w.~+/=-]{0,60}[0-9])[\w.~+/=-]{8,}|[\w.~+/=-]{24,})"),
    ("COOKIE", r"(?i)\b(?:set-)?cookie2?" + QUOTE + r"?[\])]?\s{0,3}(?:[:=,]|=>)\s{0,3}" + QUOTE
     + r"?(?P<value>[\w.!%*+$-]{1,80}=[^\n\ue000-\ue0ff\"`]+)"),
    ("COOKIE", r"\bcurl\b[^\n]{0,400}?\s(?:-b|--cookie)[ =]?" + QUOTE
     + r"?(?P<value>[\w.-]{1,80}=[^\n" + _NO_QUOTE + r"]{2,})"),
    # addresses that are a key
    ("API_KEY", r"(?i)[?&](?:code|ticket|st|invite|reset|jwt|otp)="
     r"(?P<value>(?=[A-Z%+/_-]{0,60}[0-9])[\w%.~+/=-]{20,})"),
    ("API_KEY", r"(?i)\bhooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/(?P<value>[\w/+-]{16,})"),
    ("API_KEY", r"(?i)\bdiscord(?:app)?\.com/api/(?:v[0-9]+/)?webhooks/(?P<value>[0-9]+/[\w-]{20,})"),
    ("API_KEY", r"(?i)\bwebhook\.office\.com/webhookb2/(?P<value>[\w@/-]{30,})"),
    ("API_KEY", r"(?i)\bhooks\.zapier\.com/hooks/catch/(?P<value>[\w/]{8,})|"
     r"\bmaker\.ifttt\.com/\S{1,80}/key/[\w-]{10,}"),
    ("API_KEY", r"(?i)\bapi\.telegram\.org/(?:file/)?bot(?P<value>[0-9]+:[\w-]{20,})"),
    ("API_KEY", r"(?i)[a-z0-9]\.(?:m\.pipedream\.net|webhook\.site|integromat\.com|make\.com)/(?P<value>[\w-]{16,})"),
)  # fmt: skip
"""Where a key stands, whatever its form: the kind, and a pattern whose `value` it is."""
_PLACED = tuple((kind, re.compile(pattern)) for kind, pattern in _PLACES)
_BASIC = re.compile(r"(?i)\bbasic\s+(?P<value>[a-z0-9+/_-]{6,}={0,2})")

_PASSWORDS = (
    r"(?<!no)passw(?:or)?[dt](?: di accesso)?|passphrase|pass[_-]?code|password[es]?|pwd|"
    r"(?<![a-z])(?:(?:db|smtp|mail|ftp|user|root)?pass|pswd?|psw|pw)|kennwort|"
    r"zugangscode|losung|"
    r"mot[ _-]?de[ _-]?passe|mdp|contrase(?:ñ|n|\\u00f1)a|clave(?: de acceso|[ _](?:api|secreta))?|"
    r"palavra[ -]passe|senha|"
    r"parola(?: d'ordine)?|"
    r"wachtwoord|l[öo]senord|passord|adgangskode|salasana|has[łl]o|heslo|jelsz[óo]|lozinka|geslo|[şs]ifre|κωδικός|"
    r"пароль|סיסמה|"
    r"密码|密碼|パスワード|비밀번호|كلمة المرور|पासवर्ड"
)
_STRONG = (
    rf"{_PASSWORDS}|secret|geheimnis|token|"
    r"(?:api|access|account|auth|private|secret|master|encrypt(?:ion)?|signing|license|licence|shared|storage|service|"
    r"client|"
    r"webhook|subscription|session|deploy|deployment|admin|application|bot|ingest|instrumentation|integration|"
    r"hmac|jwt|aes|wpa|psk|preshared|pre[_ -]shared|recovery|product|functions?|host)[_ .-]?keys?|"
    r"code secret|jeton|cl[ée][ _](?:api|secr[eè]te|d'api|d'accès)|chiave[ _](?:api|segreta)|"
    r"chave[ _](?:api|secreta)|sleutel|(?:api|access|アクセス|秘密)[ _-]?キー|(?:api|访问|秘密|私)[ _-]?(?:密钥|金鑰)|"
    r"zugangsdaten|"
    r"credentials?|(?<![a-z])psk|wi-?fi[_ -]?key|(?:wlan|wi-?fi|netzwerk|sicherheits|api|zugangs)[_ -]?schlüssel"
)
_SUFFIX = (
    r"(?:[_.-]?(?:[0-9]{1,3}|base|old|new|current|prod\w{0,8}|dev|test|staging|live|main|default|primary|secondary|"
    r"confirm\w{0,8}|"
    r"again|repeat|plain|value|str|string|text|b64|base64|rw|ro|read|write|admin|root|user))"
)
_WEAK = (
    r"[A-Za-z_-]{0,30}(?:keys?|auth|sig|signature|creds?|bearer|hash|sess(?:ion)?(?:_?id)?|sid|csrf|xsrf|nonce|hmac|"
    r"key[_-]?data)"
)
_STRONG_NAME = re.compile(rf"(?i:(?P<strong>{_STRONG}){_SUFFIX}{{0,2}})$")
_NAME = rf"(?:(?:{_STRONG}){_SUFFIX}{{0,2}}|(?<![A-Za-z0-9]){_WEAK}|[a-z0-9](?:Key|Auth|Sig|Signature|Cred))"
_JUDGED = 400
"""Characters of a value without quotes by which it is judged; the rest of it is replaced with it."""
_REST = re.compile(rf"[^\s,;&<>|{_NO_QUOTE}]*")
_BARE = rf"(?P<bare>[^\s,;&<>|{_NO_QUOTE}][^\s,;&<>|{_NO_QUOTE}]{{0,{_JUDGED}}})"
_QUOTED = rf"[fbrLu@]?(?P<quote>{QUOTE})(?!(?P=quote))(?P<quoted>[^\n]{{1,2000}}?)(?P=quote)"
_IS = r"is|was|ist|sei|war|lautet|lauten|est|es|era|é|è|e'|jest|är"
_NAMED = re.compile(
    rf"(?i:{_NAME})(?![A-Za-z0-9])(?=(?P<gap>"
    rf"(?P<pair>{QUOTE}?\s{{0,9}}[,}}\])]{{0,2}}\s{{0,9}}{QUOTE}?(?i:value|wert){QUOTE}?\s{{0,3}}[:=]\s{{0,3}})"
    rf"|(?P<call>{QUOTE}\s{{0,3}},\s{{0,3}}(?={QUOTE})|\(\s?@?(?={QUOTE}))"
    rf"|{QUOTE}?[\])]{{0,2}}(?:\s(?i:for|für|of|von|vom|pour|de|du|del|para|per|di)\s[^\n.:;,=?!]{{1,30}}?|"
    rf"\s?\([^()\n]{{1,30}}\))?[ \t*_]{{0,12}}(?::\s{{0,2}}[A-Za-z_][\w.\[\]?|]{{0,30}}\s{{0,2}}(?==))?"
    rf"(?P<sign>:=|=>|[=!]==?|=|::?|->|-(?=\s)|\|(?=\s)|(?:\s[\w:-]+=[^<>\n]{{0,80}})?>)(?:[ \t*_]{{0,12}}|"
    rf"[ \t]*(?:[>|][+-]?)?\n[ \t]{{0,20}})(?:</?\w{{1,10}}>\s?){{0,3}}"
    rf"|(?P<sentence>(?:\s(?i:for|für|fürs|zum|zur|von|vom|pour|du|de|del|para|per|to|of|on|im|am|at|"
    rf"in)\s[^\n.:;=?!]{{1,40}}?)?"
    rf"\s(?:(?i:now|jetzt|neu)\s)?(?i:{_IS})(?:\s(?i:now|jetzt|still|auch))?\s?:?\s{{1,3}}|['\u2019]s\s|\s?(?:是|为|為|は|는|은)\s?)"
    rf"|(?P<option>\s{{1,3}})"
    rf")(?:{_QUOTED}|{_BARE}))"
)
_BEFORE = re.compile(r"[\w$.-]*\Z")
_LINE_BEGINS = re.compile(r"(?:^|\n)[ \t]*(?:export |set |SET |setx |ENV |ARG |-e |--env |\$env:|- )?\Z")
_PLACEHOLDER = re.compile(
    r"(?i)[$%]?[{<\[%(].*|\$\w+|\$\(.*|.*[>}]|%\w{1,2}|[*.x•_…#-]+|--.*|(?:your|my|ihr|dein|the|some|example|insert|"
    r"enter)[_ -].*"
    r"|redacted\W*|changeme|\[.*\]|(?:os|process|sys|env|self|this|config|settings|args|request|req|data|user|"
    r"ctx)[.\[].*"
    r"|removed-[a-z-]+-[0-9]+"
)
"""Values that stand for another: variables, templates, stars, `your-password`, and what an import has replaced."""
_EXPRESSION = re.compile(
    r"[A-Za-z_$][\w.$]*(?:\(|\[|->|\?|::).*|[A-Za-z_]+(?:\.[A-Za-z_]+)+|"
    r"[A-Za-z_]\w{0,19}(?:\.\w{1,20}){0,5}\.(?i:\w{0,20}(?:pass\w{0,8}|pwd|secret|token|key|value|text|data|id|name|auth))|[A-Z]\w*(?:Str|String|Type|Token)"
)
_NOT_VALUES = frozenset(
    """
    bearer basic digest apikey negotiate none null nil true false undefined nan yes no ja nein str string strings
    bytes byte int integer number bool boolean text varchar char object any array list dict map optional required
    hidden secret password passwort token tokens key keys var let const self this new function async await lambda
    import return not and und or oder if the a an das der die ein eine mein dein is ist was must should shall can
    cannot may will would has have had be been to of in on at for für from with mit without ohne wrong incorrect
    invalid correct valid expired abgelaufen falsch richtig ungültig gültig missing empty leer stored sent reset
    changed geändert weak strong schwach stark sicher secure safe unsafe sehr too zu long short longer shorter lang
    kurz nicht kein keine unknown unbekannt default only nur never always immer also auch still noch already schon
    now jetzt here hier used based encrypted verschlüsselt hashed saved gespeichert needed nötig erforderlich
    provided given set unset same different lost forgotten vergessen pas plus trop très incorrecte expiré requis
    obligatoire incorrecta inválida caducada requerida muy sbagliata scaduta errata non più necessaria errado
    expirada não muito inválido your our my his her their its it that which what when where how why who please bitte
    enter eingeben possible impossible möglich input field feld type value wert name username user email
    """.split()  # noqa: SIM905 (a table of words, by line)
)
"""Words after `password:` or `password is` that are no password."""
_CLAUSE_ENDS = re.compile(
    r"[.!?]\s+[A-ZÄÖÜ]|"
    r"[.!?]?(?:\s*$|[ \t]*(?:\n|\|\s*(?:\n|$))|[,;\"'`|<)}\]\ue000-\ue0ff&]|"
    r"[ \t]+(?:#|//|--|and\b|und\b|et\b|y\b|e\b|[\w-]+[=:]))"
)


def secrets_in_text(view: str) -> Iterator[Span]:
    """Yield the keys, passwords and tokens in a text, given as `same_length` shows it; spans may overlap."""
    yield from ((*match.span(), "API_KEY") for match in SERVICE_KEY.finditer(view))
    for kind, pattern in _PLACED:
        for match in pattern.finditer(view):
            group = "value" if match["value"] is not None else 0
            if kind == "PRIVATE_KEY" or (
                not _PLACEHOLDER.fullmatch(match[group]) and match[group].lower() not in _NOT_VALUES
            ):
                yield *match.span(group), kind
    for match in _BASIC.finditer(view):
        if _is_user_and_password(match["value"]):
            yield *match.span("value"), "AUTHORIZATION"
    word_ends = 0  # of the last word that is longer than what is judged of it: all names in it have the same end
    for match in _NAMED.finditer(view):
        group = "bare" if match["quoted"] is None else "quoted"
        start, stop = match.span(group)
        before = _BEFORE.search(view, max(0, match.start() - 60), match.start())
        name = (before[0] if before is not None else "") + match[0]
        if group == "bare":
            stop = _end_of_bare(view, match, name, start, stop)
        if stop > start and _is_secret(view, match, name, view[start:stop]):
            if stop - start > _JUDGED and stop > word_ends and (rest := _REST.match(view, stop)) is not None:
                word_ends = rest.end()
            yield start, max(stop, word_ends) if stop - start > _JUDGED else stop, "PASSWORD"


def _is_user_and_password(text: str) -> bool:
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_" if set(text) & {"-", "_"} else None)
    except binascii.Error:
        return False
    return b":" in decoded and decoded.decode("latin-1").isprintable()


def _end_of_bare(view: str, match: re.Match[str], name: str, start: int, stop: int) -> int:
    """Return where a value without quotes ends: in a line of a .env file only with it, else before punctuation."""
    if match["sign"] == "=" and _stands_alone(view, match, name):
        while stop < len(view) and view[stop] in ",;&<>|":
            stop += len((re.compile(rf"[^\s{_NO_QUOTE}]+").match(view, stop) or match)[0])
    value = view[start:stop]
    bare = value.rstrip(".:!?*_" if match["sign"] != "=" else ".:*")
    while bare[-1:] in {")", "]", "}"} and bare.count(bare[-1]) > bare.count({")": "(", "]": "[", "}": "{"}[bare[-1]]):
        bare = bare[:-1]
    return start + len(bare)


def _stands_alone(view: str, match: re.Match[str], name: str) -> bool:
    """Return whether this is a line of a .env file or a shell, whose value ends with it."""
    begin = match.start() - (len(name) - len(match[0]))
    written = name.isupper() or "export" in view[max(0, begin - 8) : begin]
    return written and _LINE_BEGINS.search(view, max(0, begin - 24), begin) is not None


def _is_secret(view: str, match: re.Match[str], name: str, value: str) -> bool:  # noqa: C901, PLR0911 (reasons, in order)
    lower, quoted = value.lower(), match["quoted"] is not None
    if _PLACEHOLDER.fullmatch(value) or lower in _NOT_VALUES or lower in name.lower().split("."):
        return False
    if (strong := _STRONG_NAME.search(name)) is None:
        return _is_called_key(name) and (match["sign"] or match["pair"]) is not None and looks_random(value)
    word = strong["strong"].lower()
    password = re.fullmatch(_PASSWORDS, word, re.IGNORECASE) is not None
    if match["option"] is not None and not (name.startswith(("-", "/")) or (quoted and password)):
        return (password or looks_random(value)) and bool(re.fullmatch(r"(?=.*[0-9])(?=.*[A-Za-z])\S{6,}", value))
    if _is_comparison(view, match) or (not quoted and _EXPRESSION.fullmatch(value)):
        return False
    if _is_other_word(match, name, value) or (match["sign"] == "|" and not password):
        return False
    mixed, has_digit = not value.isalpha(), any(map(str.isdigit, value))
    if value.isdigit() and not (password and len(value) >= 4):
        return word == "secret" and len(value) >= 6
    if match["call"] is not None:
        return mixed and " " not in value and (has_digit or len(value) >= 20) and name.lower() != lower
    if " " in value:
        return _is_phrase(value, word)
    if (mixed and has_digit) or re.search(r"[^\w.-]", value):
        return len(value) >= (3 if password else 6)
    if match["sentence"] is not None:
        if name.startswith("-"):
            return False
        ends = quoted or _CLAUSE_ENDS.match(view, match.start("bare") + len(value)) is not None
        return ends and len(value) >= 4 and password
    return _is_word_secret(view, match, name, value, word, password=password)


def _is_called_key(name: str) -> bool:
    """Return whether a name that is no strong one may be that of a key."""
    is_weak = re.search(rf"(?i)(?:^|\.){_WEAK}$", name) is not None
    return any(secret_parts(name)) or SECRET_NAME.match(name) is not None or is_weak


def _is_comparison(view: str, match: re.Match[str]) -> bool:
    """Return whether the sign before the value compares: it ends in >, is no arrow, and closes no tag."""
    sign = match["sign"] or ""
    return sign[-1:] == ">" and sign not in {"=>", "->"} and "<" not in view[max(0, match.start() - 60) : match.start()]


def _is_other_word(match: re.Match[str], name: str, value: str) -> bool:
    """Return whether `pass` is the verb or an outcome here, and no password."""
    plain = name.lower().rpartition(".")[2].strip("-_") == "pass" and not any(map(str.isdigit, value))
    return plain and (match["sign"] is None or match["gap"][-1:].isspace())


def _is_word_secret(view: str, match: re.Match[str], name: str, value: str, word: str, *, password: bool) -> bool:
    """Return whether a value of letters alone is a secret, and no variable, type or word of a sentence."""
    if len(value) < (3 if password else 6):
        return False
    begin = match.start() - (len(name) - len(match[0]))
    before = view[max(0, begin - 1) : begin]
    if match["quoted"] is None:
        if match["sign"] in {":", "|"} and not _CLAUSE_ENDS.match(view, match.start("bare") + len(value)):
            return False
        in_call = before == "(" or view[max(0, begin - 2) : begin] == ", "
        code = match["sign"] == "=" and (in_call or match["gap"].strip("=") != "")
        alone = (
            password and (begin == 0 or before == "\n") and view[match.start("bare") + len(value) :][:1] in {"", "\n"}
        )
        if code and not alone:
            return False
        if (match["sign"] or " ")[-1] not in "=:|>" and match["option"] is None and match["pair"] is None:
            return False
        if word in value.lower():
            return False
    bare_name = name.strip("-_\"'") in {"token", "Token"} and before not in set("?&;#")
    return password or not bare_name or len(value) >= 16 or looks_random(value)


def _is_phrase(value: str, name: str) -> bool:
    """Return whether a value of several words is a secret: one of its words is none, or it is called a phrase."""
    words = value.split()
    if name == "passphrase":
        return 3 <= len(words) <= 12 and not _NOT_VALUES.intersection(map(str.lower, words))
    odd = [word for word in words if re.search(r"[A-Za-z][0-9]|[0-9][A-Za-z]|\w[!@#$%^&*+=~]\w", word)]
    return bool(odd) and len(words) <= 6 and not _NOT_VALUES.intersection(map(str.lower, words))


def looks_random(value: str) -> bool:
    """Return whether *value* has the length and the mixture of a generated key; a name, path or sentence has not."""
    if len(value) < 12 or re.search(r"[^\w+/=.~%:-]|://|\.\w{2,4}$", value) or not any(map(str.isdigit, value)):
        return False
    kinds = re.sub(r"[A-Z]+", "A", re.sub(r"[a-z]+", "a", re.sub(r"[0-9]+", "0", re.sub(r"[^A-Za-z0-9]", "", value))))
    return len(kinds) >= max(4, len(value) // 12)
