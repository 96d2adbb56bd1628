"""Sphinx configuration. The table of rules is written from tfopt.rules at each build."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from sphinx.application import Sphinx
from sphinx.ext.autosummary.generate import generate_autosummary_docs

import tfopt
from tfopt import raw_ops, training_ops
from tfopt.rules import OPS, RULES, Rule

sys.path.insert(0, str(Path(__file__).parent))  # for this folder's extensions

from class_pages import COMMON

project = "tfopt"
author = "the tfopt developers"
copyright = "the tfopt developers"
version = release = tfopt.__version__

extensions = [
    "class_pages",
    "mathml",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["colon_fence", "dollarmath", "fieldlist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "changes", "plots"]
templates_path = ["_templates"]
highlight_options = {"python": {"stripnl": True}}  # examples may end with an empty line
html_math_renderer = "mathml"
html_title = "tfopt"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["tfopt.css"]
html_search_scorer = str(Path(__file__).with_name("search_scorer.js"))
html_theme = "pydata_sphinx_theme"
html_theme_options = {
    "logo": {"text": "tfopt"},
    "header_links_before_dropdown": 8,
    "navbar_end": ["site-version", "theme-switcher"],
    "navbar_persistent": ["search-button"],
    "navigation_with_keys": False,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
}
html_sidebars = {"index": [], "**": ["sidebar-nav-bs"]}
html_show_sourcelink = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
sphinx_gallery_conf = {
    "examples_dirs": "plots",
    "gallery_dirs": "gallery",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "min_reported_time": 1e6,
    "show_memory": False,
    "show_signature": False,
    "thumbnail_size": (560, 320),
    "within_subsection_order": "gallery_order.GalleryOrder",
    "write_computation_times": False,
}
autosummary_context = {"common": {*COMMON, "convert_storage", "exclude_from_weight_decay"}}
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
autodoc_default_options = {"members": True, "undoc-members": False, "show-inheritance": True}
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # the sections of parameters have them in words
default_role = "autolink"  # names of objects in docstrings, and emphasis of all others
nitpicky = True
nitpick_ignore_regex = [
    # Other libraries: their inventories would have to be fetched.
    (r"py:.*", r"(np|numpy|abc|collections|contextlib|distributed|enum|os|threading|typing)\..*"),
    # Base classes and types in annotations that are not public, so that they have no page.
    (r"py:class", r"(Array|Call|Constraints|Write)"),
    (r"py:class", r"tfopt\.raw_ops\.V"),
    (r"py:obj", r"tfopt\.autodiff\.[a-z]+\.[PR]"),  # variables of types
    (r"py:class", r"tfopt\.checkpoints\.entries\..*"),
    (r"py:class", r"tfopt\.(core|kernels)\..*"),
    (r"py:class", r"tfopt\.dask\.(ftrl|predictions|sdca)\..*"),
    (r"py:class", r"tfopt\.linear_model\.[a-z_]+\..*"),
    (r"py:obj", r"(progressive_)?loss_"),  # properties, which numpydoc lists as attributes
    (r"py:class", r"tfopt\.optimizers\.(algorithms|base|schedules|settings|state|step)\..*"),
]


def _row(rule: Rule) -> str:
    """Return a rule's row of the table in docs/rules.md."""
    flags = ", ".join(f"`{name}={on}`" for name, on in rule.flags.items()) or "none"
    cells = [
        f"{{py:func}}`~tfopt.training_ops.apply_{rule.name}`",
        f"`{OPS[rule.name].name}`" if rule.name in OPS else "none",
        ", ".join(f"`{slot}`" for slot in rule.slots) or "none",
        ", ".join(f"`{hyper}`" for hyper in rule.hypers),
        flags,
        "own step" if rule.rows else "the dense step",
        str(4 * rule.traffic),
    ]
    return "| " + " | ".join(cells) + " |"


def _write_table(app: object) -> None:
    header = ["function", "TensorFlow's op", "slots", "hyperparameters", "flags", "sparse rows",
              "bytes per float32 element"]  # fmt: skip
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header), *map(_row, RULES)]
    sources = [f"- `{rule.name}`: {rule.summary} {rule.source}." for rule in RULES]
    text = "\n".join([*lines, "", *sources, ""])
    Path(__file__).with_name("_table.inc").write_text(text, encoding="utf-8")


def _listed(module: ModuleType, names: list[str]) -> list[str]:
    """Return the lines of a list of functions, of which each gets a page."""
    head = ["```{eval-rst}", f".. currentmodule:: {module.__name__}", "", ".. autosummary::"]
    options = ["   :toctree: generated", "   :nosignatures:", ""]
    return [*head, *options, *(f"   {name}" for name in names), "```", ""]


def _write_lists(app: Sphinx) -> None:
    """Write the lists of docs/api that follow from the table of rules, and the functions' pages."""
    ours = [f"apply_{rule.name}" for rule in RULES if rule.name not in OPS]
    rest = [name for name in training_ops.__all__ if name not in ours]
    lists = {
        "training_ops": [
            "## TensorFlow's rules", "", *_listed(training_ops, rest),
            "## More rules", "", *_listed(training_ops, ours),
        ],
        "raw_ops": _listed(raw_ops, raw_ops.__all__),
    }  # fmt: skip
    files = [Path(__file__).parent / "api" / f"_{name}.inc" for name in lists]
    for file, lines in zip(files, lists.values(), strict=True):
        file.write_text("\n".join(lines), encoding="utf-8")
    generate_autosummary_docs(list(map(str, files)), app=app)


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", _write_table)
    app.connect("builder-inited", _write_lists)
