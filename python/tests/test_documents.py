# SPDX-License-Identifier: MIT OR Apache-2.0
"""The notebook and the blocks of docs/python.md run."""

import re

import nbformat
from conftest import ROOT
from nbclient import NotebookClient

NOTEBOOK = ROOT / "python/examples/trace.ipynb"


def test_the_notebook_runs(monkeypatch):
    # It would prevent pictures in the notebook.
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code), "clear its outputs"
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": NOTEBOOK.parent}}).execute()
    pictures = [out for cell in code for out in cell.outputs if "image/png" in out.get("data", {})]
    assert len(pictures) == 4
    assert all(out.output_type != "error" for cell in code for out in cell.outputs)


def test_the_blocks_of_the_page_run(tmp_path, monkeypatch, cluster):
    page = (ROOT / "docs/python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    (tmp_path / "crates").symlink_to(ROOT / "crates")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
