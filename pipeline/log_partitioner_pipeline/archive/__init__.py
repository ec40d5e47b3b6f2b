"""An older system's CSV archive as another witness of the source, and two witnesses' results side by side.

    run.py      one audit of a window against an archive: the order of its steps, its result
    files.py    which files a window reads, and their rows as a frame
    rows.py     bytes -> rows, and what a text of CSV is worth
    span.py     offsets of the source that a window reads, and which records are of it
    source.py   entries of the source with their ids and the values that CSV has, too
    by_id.py    entries and rows side by side by unique id -> findings, counts
    collect.py  frames -> the bounded parts of the result
    frames.py   rows on executors, columns of an entry
    compare.py  two results of audits side by side; needs neither Spark nor settings

Nothing here knows of this product's work: no reference, no committed offset. Results are those of `audit`.
"""
