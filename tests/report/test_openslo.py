"""The checks as OpenSLO v1 objects, compared with the requirements of its specification."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.report import openslo
from tests.builders.page_data import PAGE, like_golden, page_of, whole_case

KEY = re.compile(r"[a-zA-Z0-9]([-._a-zA-Z0-9]{0,61}[a-zA-Z0-9])?")
"""Of an annotation, without the domain that may stand before it."""
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
SHORTHAND = re.compile(r"[1-9][0-9]*[mhdwMQY]")


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(part) for part in text.split("---\n")]


def test_the_export_is_as_it_was() -> None:
    """
    One object for each check: compared with a stored file.
    """
    like_golden("openslo.yaml", openslo.render(PAGE))


def test_every_promise_is_one_object_with_a_name_of_its_own() -> None:
    """
    As many SLOs as checks, each named by RFC 1123 and no two alike, all of one service.
    """
    page_data = page_of(whole_case())
    checks = [*(check for part in page_data.verdict.workloads for check in part.checks), *page_data.verdict.host_checks]

    service, *slos = objects(openslo.render(page_data))

    names = [slo["metadata"]["name"] for slo in slos]
    assert (len(checks), len(checks)) == (len(slos), len(set(names)))
    assert [] == [name for name in (*names, service["metadata"]["name"]) if not LABEL.fullmatch(name)]
    assert {service["metadata"]["name"]} == {slo["spec"]["service"] for slo in slos}


def test_each_object_has_what_the_specification_requires() -> None:
    """
    One indicator, one window, a budgeting method with its slices, one objective with op, value and a target below 1.
    """
    for slo in objects(openslo.render(page_of(whole_case())))[1:]:
        spec = slo["spec"]
        (window,), (objective,) = spec["timeWindow"], spec["objectives"]
        sliced = spec["budgetingMethod"] == "Timeslices"
        assert ("openslo/v1", "SLO") == (slo["apiVersion"], slo["kind"])
        assert {"thresholdMetric", "description"} == set(spec["indicator"]["spec"])
        assert SHORTHAND.fullmatch(window["duration"])
        assert 0 <= objective["target"] < 1
        assert objective["op"] in {"gte", "lte"}
        assert sliced == ("timeSliceTarget" in objective) == ("timeSliceWindow" in objective)
        assert all(isinstance(value, str) for value in slo["metadata"]["annotations"].values())
        assert [] == [key for key in slo["metadata"]["annotations"] if not KEY.fullmatch(key)]


def test_each_object_fits_the_schema_of_openslo() -> None:
    """
    The JSON Schema that OpenSLO published accepts every object, and refuses one without its objectives.
    """
    if "OPENSLO_SCHEMAS" not in os.environ:
        pytest.skip("OPENSLO_SCHEMAS names no folder of OpenSLO's schemas (schemas/v1, in no package)")
    referencing = pytest.importorskip("referencing")
    jsonschema = pytest.importorskip("jsonschema")
    schemas = [json.loads(path.read_text()) for path in Path(os.environ["OPENSLO_SCHEMAS"]).rglob("*.schema.json")]
    registry = referencing.Registry().with_contents((schema["$id"], schema) for schema in schemas)
    (schema_of_all,) = [schema for schema in schemas if schema["title"] == "OpenSLO"]
    check = jsonschema.Draft7Validator(schema_of_all, registry=registry)

    exported = objects(openslo.render(page_of(whole_case())))
    faults = [fault for exported_object in exported for fault in check.iter_errors(exported_object)]
    del exported[1]["spec"]["objectives"]

    assert [] == [(list(fault.absolute_path), fault.message) for fault in faults]
    assert not check.is_valid(exported[1])


@pytest.mark.parametrize(
    ("seconds", "written"), [(2_592_000, "30d"), (3600, "1h"), (300, "5m"), (20, "1m"), (90, "2m")]
)
def test_durations_are_whole(seconds: float, written: str) -> None:
    """
    OpenSLO has no seconds: a duration is rounded up to whole minutes.
    """
    assert written == openslo.shorthand(seconds)


@given(st.lists(st.text(max_size=120), min_size=2, max_size=2, unique=True))
def test_any_text_has_a_name_of_its_own(texts: list[str]) -> None:
    """
    Long, foreign and nearly alike texts become labels, and two texts that differ in more than a dash differ there too.
    """
    first, second = (openslo.name(text) for text in texts)

    assert LABEL.fullmatch(first)
    if re.sub(r"[ _-]", "-", texts[0].lower()) != re.sub(r"[ _-]", "-", texts[1].lower()):
        assert first != second
