"""Every model that the original's own cases describe: read from its dictionary it is the model that
public constructors build, and through mithril's own dictionary it comes back as it was.

The cases are not copied into the project: without ../shared/cases this is one skip.
"""

import json
import sys
from pathlib import Path

import pytest
from mithril.formats import dict_to_model
from mithril.utils import dict_conversions

CASES = Path(__file__).resolve().parents[4] / "shared" / "cases"


def known(model):
    """Keys and shapes. Which of two sizes is written by the other may differ (u3 for u1+u2), which
    ones are equal may not: each stands for the place where it is met first."""
    places = {}
    shapes = {
        key: shape
        and [n if isinstance(n, int) else (places.setdefault(str(n), len(places)),) for n in shape]
        for key, shape in model.shapes.items()
    }
    return list(model.input_keys), list(model.output_keys), shapes


def forms():
    for path in sorted(CASES.glob("*_test*.json")):
        for name, case in json.loads(path.read_text()).items():
            form = case.get("model")
            if form is not None:
                yield f"{path.stem}: {name}", {"name": form} if isinstance(form, str) else form


def test_models_of_the_cases():
    if not (CASES / "run.py").exists():
        pytest.skip(f"cases: folder not found: {CASES}")
    sys.path.insert(0, str(CASES))
    try:
        import run
    finally:
        sys.path.remove(str(CASES))
    read = 0
    for name, form in forms():
        try:
            built = run.build(form)
        except Exception:  # noqa: BLE001 - a case of an error, or of arguments that are drawn
            continue
        assert known(dict_to_model(form)) == known(built), name
        again = dict_conversions.dict_to_model(dict_conversions.model_to_dict(built))
        assert known(again) == known(built), name
        read += 1
    assert read > 300
