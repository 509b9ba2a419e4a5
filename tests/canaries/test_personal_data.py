"""What `canaries import` replaces: numbers with check digits, and secrets by name, place and form; and what stays."""

import base64
import json
import random
import re
import string
from collections.abc import Callable, Iterator

import pytest

from gatekeeper.canaries.personal_data import Replacer

RANDOM = random.Random(7)
MIXED, LOWER, UPPER, HEX = (
    string.ascii_letters + string.digits,
    string.ascii_lowercase,
    string.ascii_uppercase,
    "0123456789abcdef",
)
DIGITS = string.digits


def some(count: int, letters: str = MIXED) -> str:
    """Draw characters of *letters*, one of them a digit where there are any."""
    drawn = [RANDOM.choice(letters) for _ in range(count)]
    if letters in {MIXED, HEX}:
        drawn[1:3] = "7a"
    return "".join(drawn)


def luhn(digits: str) -> str:
    """Add the check digit of ISO/IEC 7812."""
    total = sum(sum(divmod(int(digit) * (2 - place % 2), 10)) for place, digit in enumerate(reversed(digits)))
    return f"{digits}{-total % 10}"


def iban(country: str, account: str, groups: str = "") -> str:
    """Add the check digits of ISO 13616."""
    number = int("".join(str(int(char, 36)) for char in f"{account}{country}00"))
    number_text = f"{country}{98 - number % 97:02d}{account}"
    return groups.join(number_text[place : place + 4] for place in range(0, len(number_text), 4))


def ean13(digits: str) -> str:
    """Add the check digit of an AHV number."""
    return f"{digits}{-sum(int(digit) * (1 + 2 * (place % 2)) for place, digit in enumerate(digits)) % 10}"


def nir(digits: str) -> str:
    return f"{digits}{97 - int(digits) % 97:02d}"


def letter(digits: str) -> str:
    """Add the letter of a Spanish DNI."""
    return digits + "TRWAGMYFPDXBNJZSQVHLCKE"[int(digits) % 23]


def weighted(digits: str, *rows: tuple[int, ...], modulus: int = 11) -> str:
    """Add a check digit for each row of weights: what makes the sum with them a multiple of *modulus*."""
    for row in rows:
        rest = -sum(int(digit) * weight for digit, weight in zip(digits, row, strict=True)) % modulus
        digits += str(rest % 10)
    return digits


def dotted(digits: str, form: str) -> str:
    """Write *digits* in the places of # in *form*."""
    digits_left = iter(digits)
    return "".join(next(digits_left) if char == "#" else char for char in form)


AHV = ean13("756123456789")
CPF = weighted("529982247", (1, 2, 3, 4, 5, 6, 7, 8, 9)[::1], modulus=11)
PESEL = weighted("9203150417", (1, 3, 7, 9, 1, 3, 7, 9, 1, 3), modulus=10)

NUMBERS: dict[str, str] = {
    # IBANs of all lengths (SWIFT registry), with and without groups
    "iban de": iban("DE", "370400440532013000"),
    "iban de groups": iban("DE", "370400440532013000", " "),
    "iban ch": iban("CH", "00762011623852957"),
    "iban ch groups": iban("CH", "0024024016801234A", " "),
    "iban fr": iban("FR", "20041010050500013M02606"),
    "iban fr groups": iban("FR", "20041010050500013M02606", " "),
    "iban gb": iban("GB", "NWBK60161331926819"),
    "iban gb small": iban("GB", "BARC20040112345678").lower(),
    "iban at": iban("AT", "1904300234573201", " "),
    "iban it": iban("IT", "X0542811101000000123456"),
    "iban es": iban("ES", "21000418450200051332", " "),
    "iban nl": iban("NL", "ABNA0417164300"),
    "iban be": iban("BE", "539007547034", " "),
    "iban pl": iban("PL", "109010140000071219812874", " "),
    "iban no": iban("NO", "86011117947"),
    "iban se": iban("SE", "50000000058398257466", " "),
    "iban mt": iban("MT", "MALT011000012345MTLCAST001S"),
    "iban sa": iban("SA", "80000000608010167519", " "),
    "iban tr": iban("TR", "0006100519786457841326", "-"),
    "iban br": iban("BR", "00360305000010009795493C1"),
    "iban ua": iban("UA", "3223130000026007233566001"),
    "iban lc": iban("LC", "HEMM000100010012001200023015", " "),
    # cards
    "visa": luhn("411111111111111"),
    "visa groups": dotted(luhn("453201511283036"), "#### #### #### ####"),
    "mastercard dashes": dotted(luhn("555555555555444"), "####-####-####-####"),
    "mastercard 2": luhn("222100000000000"),
    "amex": dotted(luhn("37828224631000"), "#### ###### #####"),
    "diners": luhn("3056930902590"),
    "discover": luhn("601111111111111"),
    "jcb": luhn("353011133330000"),
    # telephone
    **{
        f"phone {number}": number
        for number in (
            "044 668 18 00", "044/668 18 00", "0446681800", "079 123 45 67", "0041446681800", "0041 44 668 18 00",
            "+41 44 668 18 00", "+41446681800", "+49 (0)30 901820", "+49 30 901820", "030/901820", "030 901820-15"[:10],
            "0151 23456789", "01512-3456789", "(030) 901820", "0049 30 901820", "01 42 68 53 00", "01.42.68.53.00",
            "+33 (0)1 42 68 53 00",
            "06 12 34 56 78", "020 7946 0958", "(020) 7946 0958", "+44 20 7946 0958", "07911 123456", "0664 1234567",
            "+43 1 5880088",
            "010-1234-5678", "+81 3-1234-5678", "03-1234-5678", "+1 212 555 0123", "(212) 555-0123", "212-555-0123",
            "06-12345678",
            "+31 6 12345678", "+39 06 69821234", "06 6982 1234", "+34 612 345 678", "+48 501 234 567",
            "+55 11 91234-5678", "+91 98765 43210",
            "08-123 456 78", "+46 8 123 456 78", "+47 22 12 34 56", "+45 32 12 34 56", "02 9374 4000",
            "+61 2 9374 4000", "021 123 4567",
            "0531-12345", "+420 601 234 567", "+7 912 345-67-89", "+86 138 1234 5678",
        )
    },
    "phone called es": "tel. 612 345 678",
    "phone called no": "Telefon: 22 12 34 56",
    "phone called dk": "mobil 32 12 34 56",
    "phone called ru": "тел. 8 (912) 345-67-89",
    "phone called cn": "手机: 13812345678",
    "phone called in": "call me at 98765 43210",
    "phone called pl": "tel: 501 234 567",
    # national numbers: the check digits are made here, or the number is the example of its authority
    "ahv": AHV,
    "ahv dots": dotted(AHV, "###.####.####.##"),
    "ahv spaces": dotted(AHV, "### #### #### ##"),
    "de pension": "65170839J003",
    "de pension spaces": "15 070649 C 103",
    "de tax": "86095742719",
    "de tax spaces": "86 095 742 719",
    "de vat": "DE136695976",
    "at vat": "ATU13585627",
    "fr vat": "FR40303265045",
    "ch vat": "CHE-107.787.577",
    "uk nino": "AB123456C",
    "uk nino spaces": "AB 12 34 56 C",
    "us ssn": "078-05-1120",
    "us itin": "912-70-1234"[:11],
    "fr nir": nir("1850578006084"),
    "fr nir spaces": dotted(nir("2550814168025"), "# ## ## ## ### ### ##"),
    "it fiscal": "RCCMNL83S18D969H",
    "es dni": letter("54362315"),
    "es dni dash": letter("12345678")[:8] + "-" + letter("12345678")[8:],
    "es nie": "X2482300W",
    "be": "85.07.30-033.28",
    "se": f"{luhn('811228987')[:6]}-{luhn('811228987')[6:]}",
    "fi": "131052-308T",
    "no": "15108695088",
    "dk": "211062-5629",
    "pl": PESEL,
    "cz": "710319/2745",
    "br cpf": "390.533.447-05",
    "br cnpj": "16.727.230/0001-97",
    "cl rut": "12.531.909-2",
    "ar cuit": "20-05536168-2",
    "mx curp": "BOXW310820HNERXN09",
    "cn": "11010519491231002X",
    "kr": "971013-9019902",
    "in pan": "ACUPA7085R",
    "in aadhaar": "2341 2341 2346",
    "tr": "17291716060",
    "za": "7503305044089",
    "ro": "1630615123457",
    "th": "1-2345-45678-78-1",
    "my": "770305-02-1234",
    "sg": "S1234567D",
    "tw": "A123456789",
    "ca sin": dotted(luhn("12345678"), "###-###-###"),
    "ie": "6433435F",
    "passport": "Passport No. C01X00T47",
    "reisepass": "Reisepass-Nr.: C4J1N8ZK2",
    "ausweis": "Personalausweis L01X00T471",
    "licence": "driver's license number D1234567",
    "nl bsn": "BSN 111222333",
    "au tfn": "TFN: 123 456 782",
    "uk nhs": "NHS number 943 476 5919",
    "account": "account number 1234567890",
    "konto": "Konto-Nr. 0532013000",
    "routing": "routing number 021000021",
}  # fmt: skip
"""Numbers by what they are; where words stand before one, its digits are what must not be left."""

PASSWORD = "Sommer2024!"
OPAQUE = some(40)
NAMED: dict[str, tuple[str, str]] = {
    # text with {} for the secret, and the secret
    **{
        f"{form} {secret}": (form, secret)
        for secret in ("hunter2x", "letmeinplease", PASSWORD)
        for form in (
            "password={}", "PASSWORD={}", "export DB_PASSWORD={}", "password: {}", "Password: {}", "Passwort: {}",
            '"password": "{}"', "'password': '{}'", 'password = "{}"', "PGPASSWORD={} psql", "pwd={}", "--password {}",
            "--password={}", "mot de passe : {}", "Contraseña: {}", "senha: {}", "wachtwoord: {}", "пароль: {}",
            "パスワード\uff1a{}",
            "Server=db;User Id=sa;Password={};Encrypt=True", "host=db user=app password={} dbname=x", "DB_SECRET={}",
            '{{\\"password\\": \\"{}\\"}}', "<password>{}</password>", "db:\n  password: {}\n  port: 5432",
            "**Password:** {}",
            "smtp_pass: {}", "MYSQL_ROOT_PASSWORD: '{}'", "client_secret={}&grant_type=x",
            "https://h.example/?token={}&x=1",
            'const password: string = "{}";', 'db.password("{}")'.replace("(", " = ").replace(")",
            ""), "Mein Passwort ist {}.",
            "My password is {}", "le mot de passe est {}", "mi contraseña es {}", "the wifi password is: {}",
            "-e MYSQL_PASSWORD={}",
            "- name: DB_PASSWORD\n  value: {}", '{{"name": "API_SECRET", "value": "{}"}}', "| password | {} |",
            "$env:DB_PASSWORD='{}'",
        )
    },
    **{
        form: (form, OPAQUE)
        for form in (
            "GITLAB_TOKEN={}", "api_key: {}", "apiKey: '{}'", "X-Api-Key: {}", "AccountKey={};EndpointSuffix=x",
            "AZURE_STORAGE_KEY={}",
            "SECRET_KEY_BASE={}", "aws_secret_access_key = {}", "Authorization: Bearer {}", "Authorization: token {}",
            "curl -H 'Authorization: Bearer {}' https://h.example", '"Authorization": "Bearer {}"', "PRIVATE-TOKEN: {}",
            "https://h.example/o?X-Amz-Signature={}", "?sv=2020&sig={}", "Cookie: session={}; theme=dark",
            "Set-Cookie: sid={}; Path=/",
            "redis://:{}@cache:6379/0", "postgres://app:{}@db/x", "https://{}@git.example/x.git",
            "amqp://user:{}@mq:5672",
            "Proxy-Authorization: Bearer {}", "--api-key {}", "-token {}", "bearer {}", "os.environ['API_KEY'] = '{}'",
            'headers={{"Authorization": f"Bearer {}"}}', "encryption_key: {}", "JWT_SECRET={}",
            "curl -u admin:{} https://h.example",
            "sshpass -p {} ssh h", "machine h login u password {}", 'os.environ.setdefault("API_KEY", "{}")',
            "//registry.npmjs.org/:_authToken={}",
            "SharedAccessKeyName=x;SharedAccessKey={}", "oauth_token_secret: {}", "refresh_token={}",
            "webhook_secret: {}",
        )
    },
    "basic": ("Authorization: Basic {}", base64.b64encode(b"anna:geheim").decode()),
    "basic alone": ("use Basic {} there", base64.b64encode(b"admin:s3cret").decode()),
    "signature": ("&X-Amz-Signature={}&y=1", some(64, HEX)),
    "pair": ("https://anna:{}@h.example/x", "gehe:im"),
}  # fmt: skip

FORMS: dict[str, str] = {
    "aws": f"AKIA{some(16, UPPER)}",
    "github": f"ghp_{some(36)}",
    "github fine": f"github_pat_{some(22)}_{some(59)}",
    "gitlab": f"glpat-{some(20)}",
    "gitlab deploy": f"gldt-{some(20)}",
    "openai": f"sk-proj-{some(48)}",
    "openai old": f"sk-{some(20)}T3BlbkFJ{some(20)}",
    "anthropic": f"sk-ant-api03-{some(93)}AA",
    "stripe": f"sk_live_{some(24)}",
    "stripe hook": f"whsec_{some(32)}",
    "google": f"AIza{some(35)}",
    "google oauth": f"GOCSPX-{some(28)}",
    "google token": f"ya29.{some(60)}",
    "hugging face": f"hf_{some(34)}",
    "npm": f"npm_{some(36)}",
    "pypi": f"pypi-AgEIcHlwaS5vcmc{some(80)}",
    "rubygems": f"rubygems_{some(48, HEX)}",
    "docker": f"dckr_pat_{some(27)}",
    "slack bot": f"xoxb-{some(12, DIGITS)}-{some(12, DIGITS)}-{some(24)}",
    "slack app": f"xapp-1-A{some(10, UPPER)}-{some(13, DIGITS)}-{some(40, HEX)}",
    "slack hook": f"https://hooks.slack.com/services/T{some(8, UPPER)}/B{some(8, UPPER)}/{some(24)}",
    "discord hook": f"https://discord.com/api/webhooks/{some(18, DIGITS)}/{some(68)}",
    "discord bot": f"M{some(25)}.{some(6)}.{some(38)}",
    "teams": f"https://x.webhook.office.com/webhookb2/{some(36, HEX)}@{some(36, HEX)}/IncomingWebhook/{some(32, HEX)}",
    "telegram": f"{some(10, DIGITS)}:AA{some(33)}",
    "sendgrid": f"SG.{some(22)}.{some(43)}",
    "mailgun": f"key-{some(32, HEX)}",
    "mailchimp": f"{some(32, HEX)}-us12",
    "brevo": f"xkeysib-{some(64, HEX)}-{some(16)}",
    "twilio": f"SK{some(32, HEX)}",
    "digitalocean": f"dop_v1_{some(64, HEX)}",
    "heroku": f"HRKU-AA{some(58)}",
    "databricks": f"dapi{some(32, HEX)}",
    "vault": f"hvs.{some(95)}",
    "doppler": f"dp.pt.{some(43)}",
    "pulumi": f"pul-{some(40, HEX)}",
    "grafana": f"glsa_{some(32)}_{some(8, HEX)}",
    "shopify": f"shpat_{some(32, HEX)}",
    "square": f"sq0atp-{some(22)}",
    "new relic": f"NRAK-{some(27, UPPER)}",
    "sentry": f"sntryu_{some(64, HEX)}",
    "postman": f"PMAK-{some(24, HEX)}-{some(34, HEX)}",
    "linear": f"lin_api_{some(40)}",
    "notion": f"ntn_{some(11, DIGITS)}{some(35)}",
    "airtable": f"pat{some(14)}.{some(64, HEX)}",
    "figma": f"figd_{some(40)}",
    "atlassian": f"ATATT3xFfGF0{some(60)}",
    "groq": f"gsk_{some(52)}",
    "replicate": f"r8_{some(37)}",
    "azure": f"{some(3)}8Q~{some(34)}",
    "age": f"AGE-SECRET-KEY-1{some(58, 'QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L')}",
    "jwt": f"eyJhbGciOiJIUzI1NiJ9.eyJ{some(40)}.{some(43)}",
    "new service": f"acme_live_{some(32)}",
    "bcrypt": f"$2b$12${some(53)}",
}
PEM = "-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----"
PEMS = {
    kind or "pkcs8": PEM.format(kind=kind, body="\n".join(some(64) for _ in range(4)))
    for kind in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ")
}


def values() -> Iterator[tuple[str, str, str]]:
    """Yield what it is, a text, and the part of it that must be gone."""
    for name, value in NUMBERS.items():
        text, digits = value, value
        if name.split()[0] not in {"iban", "phone"} or "called" in name:  # words, then the number
            words = [word for word in value.split(" ") if any(map(str.isdigit, word))]
            digits = " ".join(words) if len(words) < len(value.split(" ")) else value
        yield name, f"Bitte prüfen: {text} (siehe oben).", digits
    for name, (form, value) in NAMED.items():
        yield name, form.format(value), value
    for name, value in FORMS.items():
        yield name, f"We use {value} for it.", value.rpartition("/")[2]
    for name, value in PEMS.items():
        body = value.splitlines()[2]
        yield f"pem {name}", f"Key:\n{value}\nEnd", body
        yield f"pem {name} escaped", json.dumps({"k": value})[1:-1], body
        yield (
            f"pem {name} base64",
            base64.b64encode(value.encode()).decode(),
            base64.b64encode(value.encode()).decode()[60:],
        )


EVERY = list(values())
WRAPPED: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "in a log": lambda text: f"2026-11-24T04:00:00Z INFO\t{text}\n",
    "as arguments of a call": lambda text: json.dumps({"body": f"Hi\n{text}\nBye", "n": 1}),
    "escaped in a text": lambda text: "The body was " + json.dumps(f"Hi\n{text}\n", ensure_ascii=False) + " there.",
}


@pytest.mark.whole
@pytest.mark.parametrize("wrapped", WRAPPED)
def test_no_promised_value_is_left(wrapped: str) -> None:
    """
    Of all numbers and secrets of this file none is left, in a prompt, a log line, a tool call or escaped in a text.
    """
    uncleaned = {}
    for name, text, value in EVERY:
        cleaned = Replacer().clean(WRAPPED[wrapped](text), "chat-001")
        if value in cleaned or (len(value) > 40 and value[20:40] in cleaned):
            uncleaned[name] = cleaned

    assert 150 < len(EVERY)
    assert {} == uncleaned


BESIDE: dict[str, Callable[[str], str]] = {
    "Chinese": lambda value: f"我的号码是{value}请记录",
    "Japanese": lambda value: f"番号\uff1a{value}です。",
    "Korean": lambda value: f"번호는 {value}입니다",
    "underscores": lambda value: f"_{value}_",
    "long dashes": lambda value: f"Kunde—{value}—offen",
    "commas": lambda value: f"id,number,city\nx,{value},y",
    "a colon": lambda value: f"Ref:{value}",
    "a slash": lambda value: f"Kunde/{value}/offen",
    "tags": lambda value: f"<v>{value}</v>",
    "itself": lambda value: f"{value} {value}",
    "invisible characters": "\u200b".join,
}


@pytest.mark.whole
@pytest.mark.parametrize("beside", BESIDE)
def test_a_value_is_found_beside_anything(beside: str) -> None:
    """
    A number or key that is found by its form is found whatever stands directly before, behind and inside it.
    """
    by_form = {name: value for name, value in NUMBERS.items() if not re.search("[A-Za-z]{3}[a-z]* |:", value)}
    by_form |= {name: value for name, value in FORMS.items() if "/" not in value}
    uncleaned = {}
    for name, value in by_form.items():
        cleaned = Replacer().clean({"content": BESIDE[beside](value)}, "chat-001")["content"]
        if value in cleaned or BESIDE[beside](value) == cleaned:
            uncleaned[name] = cleaned

    assert 80 < len(by_form)
    assert {} == uncleaned


@pytest.mark.parametrize(
    "form",
    [
        "password = {}",
        "Mein Passwort ist {}",
        "https://x.org/?token={}",
        "password for admin: {}",
        "password (admin): {}",
        "パスワードは{}です",
        "비밀번호는 {}",
        "clé API : {}",
        "API-Schlüssel: {}",
        "unzip -P {} a.zip",
        "keytool -storepass {} -list",
        "ldapsearch -D cn=x -w {}",
        "echo '{}' | sudo -S ls",
        "db.host:5432:shop:bob:{}",
    ],
)
@pytest.mark.parametrize("password", ["Sommer24.abc", "Sommer24!abc"])
def test_a_password_is_found_in_the_first_line_of_a_message(form: str, password: str) -> None:
    """
    The key `content` of a message is no name of a password, and does not hide where a line begins; a dot in it is none
    of code.
    """
    cleaned = Replacer().clean({"content": form.format(password)}, "chat-001")

    assert password not in cleaned["content"]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("socialSecurityNumber", "175064676"),
        ("employeeSsn", 175064676),
        ("nationalIdNumber", "1405815029"),
        ("cpr", 1405815029),
        ("numeroCedula", "50699280389"),
        ("codiceFiscale", "175064676"),
        ("customerPhone", "612 34 15 77"),
        ("msisdn", "34612341577"),
    ],
)
def test_a_number_is_found_by_a_name_in_camel_case(name: str, number: str | int) -> None:
    """
    Keys of JSON, fields and tags call a number what a sentence calls it, in their own spelling.
    """
    for value in ({name: number}, f"{name}: {number}", f"<{name}>{number}</{name}>"):
        assert str(number) not in json.dumps(Replacer().clean({"arguments": value}, "tools-001"))


def test_a_number_is_replaced_wherever_its_canary_has_it() -> None:
    """
    A number that a sentence calls an account's is replaced in arguments and schemas, too, which stay valid JSON.
    """
    canary = {
        "content": "My account number is 41410034.",
        "arguments": json.dumps({"a": 41410034, "b": 41410034.0, "seed": 12345678901234567890123}),
        "schema": {"default": 41410034, "const": True},
    }

    cleaned = Replacer().clean(canary, "tools-001")

    assert "41410034" not in json.dumps(cleaned)
    assert 12345678901234567890123 == json.loads(cleaned["arguments"])["seed"]
    assert cleaned["schema"]["const"] is True


def test_an_address_of_the_web_keeps_its_host() -> None:
    """
    Of an address with a mail address in it, as it is or with %40, the mail address alone is replaced.
    """
    for at in ("@", "%40"):
        cleaned = Replacer().clean(f"https://shop.example.org/?user=jana{at}firma.ch&page=2", "chat-001")

        assert "https://shop.example.org/?user=person1@example.com&page=2" == cleaned


KEPT = r"""
ISBN 0-306-40615-2
127.0.0.1 and ::1, 0.0.0.0
the-risk-pa-2024-some-long-slug-with-words-3
pk_users_2024_created_at_idx_on_tables
pass rate 99.5 of 1000000 tests, the vat of 2019-2020
x = 0.0791280794241882
version 1.2.3 of 2024-01-02, 12.11.2024, 03/04/2025, 01.02.2024 08:30
Python 3.11.7, numpy==2.1.3, v10.0.19041.1237, node 18.17.0
The secret of success is patience.
The password must be at least 8 characters long.
Password: must be at least 8 characters.
password: string, the user's password
Enter your password:
Das Passwort ist abgelaufen.
Mein Passwort ist falsch, was tun?
My password is not working
My password is too short.
Your token is expired.
def login(user, password): return check(user, password)
login(user=user, password=password)
connect(host, password=pw, token=token)
token = tokens[i]
token = self.next_token()
token: str = None
password: Optional[str] = None
secret = os.environ["SECRET"]
password = getpass.getpass("Password: ")
key = lambda x: x.value
sorted(items, key=lambda item: item[1])
for key, value in d.items():
cache[key] = value
primary_key = "user_id"
{"key": "title", "value": "Hello"}
{"type": "object", "properties": {"password": {"type": "string"}}, "required": ["username", "password", "email"]}
const token = await getToken();
if (token === "EOF") { return; }
max_tokens: 100, tokenizer: gpt2, token_count=512
"token": "hello", "lemma": "hello"
<input type="password" name="password" placeholder="Password">
<label for="password">Password</label>
commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b
sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
md5 = d41d8cd98f00b204e9800998ecf8427e
assert digest == "5d41402abc4b2a76b9719d911017c592"
integrity="sha384-oqVuAfXRKap7fdgcCY5uykM6+R9GqQ8K/uxy9rx7HNQlGYl1kPzQho1wx4JwY8wC"
550e8400-e29b-41d4-a716-446655440000
ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQC7
MIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJ
https://example.com/docs?page=2&sort=key#section
https://user-images.githubusercontent.com/12345678/87654321-abcd.png
The year 1984 and 1,234,567 people; 3.14159265358979; 1e-10; 0.123456789
[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
1 000 000 Fr. and 12'345.50 and 100 000 000 Euro
Order 12345678, invoice 2024-000123, ticket #998877
int x = 1234567890; long t = 1732420464123L;
timestamp 1732420464, id 1732420464123
{"id": 1732420464123, "created": 1732420464}
0x1F4A2B3C and 0b101010 and 0755
ISBN 978-3-16-148410-0, EAN 4006381333931
Room 030, page 044, row 00
phone model XR-2000, call 911, dial 112
from 10:00 to 12:30 on 5/6
Basic understanding of HTTP and the bearer of news
Basic authentication and Bearer tokens
Authorization: required for all endpoints
Authorization: Bearer <token>
Authorization: Bearer $TOKEN
Cookie: a small sweet biscuit
Set-Cookie is a header.
password=${DB_PASSWORD}
password: {{ vault_password }}
password = "<your password>"
export TOKEN=$(cat token)
api_key = os.getenv("API_KEY")
PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
auth: jwt, method: oauth2
author: Anna, keyboard: qwerty, monkey: george, turkey: istanbul
design: modern; compass: north; bypass: valve
signature: def f(x: int) -> int
sk-learn, pk-value, re_match_all, key-value-store, pat-answer
git clone git@github.com:x/y.git
ssh://git@github.com/x/y.git
@decorator\ndef f(a, b): return a@b
npm i @types/node@18.0.0 lodash@4.17.21
my_function_name_with_many_words_and_more_words_2024
test_that_the_token_is_refreshed_after_3600_seconds
CHAPTER12 AB12CDEF IT4BIT DE12
00 01 02 03 04 05 06 07 08 09 0a
01 02 03 04
0123456789
0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144
12:34:56.789012 2024-11-24T04:00:00.123456Z
$1,234,567.89 and 45 000 000 km
Verify that token A precedes token B. The key idea: attention.
The key: patience. Key points: first, second.
keys: ["a1b2", "c3d4"], key: abc
Sort key: last_name2. Foreign key: order_items.order_id
The secret ingredient is butter. A secret: Anna loves Ben.
Token: a unit of text. Tokens: 1234
The passport of the traveller was 3 years old.
Account 2 is overdrawn; account manager: Ben
tax 19 % of 1234 is 234.46
2**31 - 1 = 2147483647
Password reset: click here. Forgot password? Change password.
Change your password regularly. Passwort vergessen?
secret sharing, secret key cryptography, public key: anyone can read
The API key is required. Set the API key in the header.
API key: see settings
Use the --token option. --password is deprecated; --password-file path
SELECT password FROM users WHERE token = ?
user.password.length > 8
if password is None: raise
password is not None
The password is stored encrypted. password is hashed
class Token(Enum): PLUS = "+"
Token(kind, value)
secret_number = random.randint(1, 100)
secretary: Ms Smith
Session 3: 14:00-15:30, Halle 7
+ 1234 - 567 = 667
x = 044; y = 030/2
12/24/2024 1/2/2025 24.12.24
AA12 bb34 cc56 dd78
ABCDEFG1234567
1.1 1.2.1 2.3.4.5.6
RFC 2616, RFC 7231 section 4, PAN 4, FIN, run 1234567, sin 12345678
"name": "token", "value": "a"
Erhöhen Sie 3 500 000 auf 4 000 000.
0041 items in stock
Nr. 030 901 and 2024/2025
9781492056355
9223372036854775807 and 18446744073709551615
192 168 1 1
"""
"""What looks like personal data or a secret, line by line."""


@pytest.mark.parametrize("line", KEPT.strip().split("\n"))
def test_what_only_looks_like_it_stays(line: str) -> None:
    """
    Versions, dates, sentences, code and hashes are the prompt: they stay as they are.
    """
    assert line == Replacer().clean(line, "chat-001")


def test_texts_stay_valid_json() -> None:
    """
    Arguments of a call are JSON after the cleaning, with numbers as numbers, and keys are cleaned as well.
    """
    arguments = {
        "anna@firma.ch": 1,
        "card": int(NUMBERS["visa"]),
        "password": ["sunflower", 12345678],
        "auth": {"headers": {"Authorization": "Bearer abcdefghij"}},
        "text": 'Say "hi"\nanna@firma.ch',
    }

    cleaned = json.loads(Replacer().clean(json.dumps(arguments), "tools-001"))

    assert {"person1@example.com", "card", "password", "auth", "text"} == cleaned.keys()
    assert 4000000000000001 == cleaned["card"]
    assert "removed-password-1" == cleaned["password"][0]
    assert 12345678 != cleaned["password"][1]
    assert "Bearer removed-authorization-1" == cleaned["auth"]["headers"]["Authorization"]
    assert 'Say "hi"\nperson1@example.com' == cleaned["text"]


def test_a_secret_is_replaced_wherever_its_canary_has_it() -> None:
    """
    What `password:` names is replaced in the call that is expected, too: else no answer could pass.
    """
    canary = {
        "messages": [{"role": "user", "content": "Log in as bob, password: sunflower. Then type sunflower again."}],
        "tools": [{"function": {"name": "f", "parameters": {"properties": {"token": {"const": "abc123def"}}}}}],
        "expect": {"tool_call": {"name": "login", "arguments": {"word": ["sunflower"]}}},
    }

    cleaned = Replacer().clean(canary, "tools-001")

    assert "sunflower" not in json.dumps(cleaned)
    assert ["removed-password-1"] == cleaned["expect"]["tool_call"]["arguments"]["word"]
    assert "abc123def" not in json.dumps(cleaned)


@pytest.mark.whole
@pytest.mark.parametrize(
    "unit",
    [
        "0",
        "0 ",
        "1-",
        "a.",
        "key=",
        "password ",
        "\\",
        '\\"',
        "a@",
        "eyJ",
        "://a:",
        "-----BEGIN PRIVATE KEY-----",
        "A1",
        "密码是",
        "token=a",
        "044 668 18 00 ",
        "1:",
        "openssl ",
    ],
)
def test_no_text_takes_long(unit: str) -> None:
    """
    A text that repeats the beginning of a pattern is read in time that grows with its length.
    """
    Replacer().clean(unit * (20_000 // len(unit)), "chat-001")
