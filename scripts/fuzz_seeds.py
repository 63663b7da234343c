"""Where the fuzzers start: files of small models, their graphs' text, headers, sizes."""

import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZES = ["N", "N+1", "2*N", "H*W", "floor(N/2)", "broadcast(a, b)", "floor((H+2*P-3)/2)+1"]


def seeds():
    """(target, name, bytes)"""
    kept = json.loads((ROOT / "tests" / "data" / "models_1_0.json").read_text(encoding="utf-8"))
    for name, model in kept.items():
        yield "model_json", name, json.dumps(model).encode()
    for i, size in enumerate(SIZES):
        yield "size_expression", str(i), size.encode()
    header = {"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
    yield "safetensors", "one", (24).to_bytes(2, "little") + json.dumps(header).encode()
    for name, text in graphs().items():
        yield "graph_text", name, text.encode()


def graphs():
    """The graphs after each pass of a small network and its gradients."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MITHRIL_DUMP"] = folder  # read once, when the package is first used
        import mithril as ml

        for shape in (["n", 4], [2, 4]):
            model = ml.Model()
            model |= ml.Linear(3)(input="x", output="h")
            model += ml.Softmax(axis=-1)()
            model |= ml.models.Buffer()(input=model.h[:, 1:].sum(axis=1, keepdim=True), output="s")
            model |= ml.Mean()(input=model.h * 2.0 - 1, output="loss")
            ml.compile(model, ml.CpuBackend(), shapes={"x": shape}, data_keys={"x"})
        found = sorted(Path(folder).rglob("*.ir"))
        return {str(p.relative_to(folder)).replace("/", "_"): p.read_text() for p in found}


def main():
    corpus = Path(sys.argv[1])
    for target, name, raw in seeds():
        (corpus / target).mkdir(parents=True, exist_ok=True)
        (corpus / target / f"seed_{name}").write_bytes(raw)
    counts = [f"{len(list(path.iterdir()))} {path.name}" for path in sorted(corpus.iterdir())]
    print(", ".join(counts))


if __name__ == "__main__":
    main()
