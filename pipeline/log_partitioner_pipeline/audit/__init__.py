"""The audit on Spark: is every source entry in exactly one committed reference or dead letter, and in the table?

    auditor.py                 the order of the steps: batches are judged here, or in tasks
    bundles.py judged.py       bundles of batches judged by tasks; findings, counts and hours that they hand back
    digests.py in_table.py     digests by reference, of files and of the table; the rows of those that differ
    listing.py                 objects under the prefix that nothing names
    result.py results.py text.py   the result, for programs and for people
    audited.py                 results as tables; which hours have passed
    history.py metrics.py      results that are kept as files; metrics of the last one

Judging is `log_partitioner.proof.audit`'s, the same as that of `log-partitioner audit`.
"""
