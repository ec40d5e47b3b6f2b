"""A result of the audit as one HTML page that needs nothing else: no network, no script.

around.py                  findings -> commits and events of the workers' logs around them
plots.py words.py          a result and those before it -> SVG; numbers and times for a person
page.py page.html.j2       files in, one page out
"""
