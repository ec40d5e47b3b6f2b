"""A result of the audit as one HTML page that needs nothing else: no network, no script.

options.py files.py                  the command's options; files in, one page out
events.py                            lines of the workers' logs -> rebalances, commits, discards, rewinds
handled.py beside.py around.py       when an offset was handled -> findings with the commits and events around them
series.py                            a result and those before it -> what is plotted
svg.py axes.py plots.py timeline.py  series -> SVG, in colours that the page chooses
words.py                             verdicts, kinds, numbers and times for a person
page.py templates/                   all of it as a page
"""
