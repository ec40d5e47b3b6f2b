"""A result of the audit as one HTML file that needs nothing else: no network, no script.

events.py                  lines of the workers' logs -> rebalances, commits, discards, rewinds
handled.py beside.py       when an offset was handled -> findings with the flushes and events around them
series.py                  a result and those before it -> what is plotted
svg.py plots.py            series -> SVG, in colours that the page chooses
words.py                   verdicts, kinds, numbers and times for a person
page.py templates/         all of it as a page
options.py                 the command's options
"""
