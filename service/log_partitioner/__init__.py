"""log-partitioner: Kafka records in, Avro by user / date / hour and committed references to it out.

The path of the data, room by room:

    adapters/kafka/consumer.py   a record leaves the client library
    runtime/runloop.py           it is accepted, or refused and read again
    runtime/recorder.py          calls what follows, for each record
        input/decode.py                 its bytes become entries, by one of input/formats/
        partitioning/partitioner.py     an entry gets its user, date and hour, or is rejected
        avro/entry_types.py             and its type, inferred once per shape
        batch/rows.py                   it becomes a row of the open batch
        batch/ledger.py                 the record's offset is covered
        batch/fast_lane.py              all of it for plain records, many at once, in compiled code
    runtime/flusher.py           calls what follows, for each batch
        batch/pack_plan.py              which rows go into which object, by their types (batch/types.py)
        batch/seal.py                   objects are sealed: by row_writer.py, which writes each row once,
                                        and reference_lines.py, which announces what was written
        runtime/uploader.py             objects are uploaded
        batch/messages.py               references, flush record, dead letters
    adapters/kafka/committer.py  and the source offsets, in one transaction

`control/` decides when and in which order (state.py, flush_policy.py), `runtime/controller.py` performs it,
`runtime/worker.py` puts everything together. `formats/` is what others read. `proof/` judges it: `oracle/` computes all
of it again, by other code, `accounting.py` says what must add up, and `audit/` compares; `live.py` has it judge a flush
right after its commit. `verify/` reads all workers' logs as one.
"""
