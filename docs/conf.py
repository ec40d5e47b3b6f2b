"""The site: `make site`. Pages are plain CommonMark, read where they are; this says how they become one."""

project = "log-partitioner"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [
    "docs/*.md",
    "docs/adr/*.md",
    "README.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "helm/log-partitioner/README.md",
]
# Links to headings are those of the repository's pages; `tests/test_pointers.py` holds them to the same anchors.
myst_heading_anchors = 4
# Blocks of commands have no language, and are no Python.
highlight_language = "none"
smartquotes = False  # an option begins with two hyphens, no dash
html_theme = "furo"
html_title = project
html_show_copyright = False
nitpicky = True
