"""log-partitioner: Kafka records in, Avro by user / date / hour and committed references to it out.

The path of the data:

1. a record leaves the client library              adapters/kafka_consumer.py   KafkaConsumer.consume
2. it is accepted, or refused and read again       runtime/runloop.py           Runloop.turn
3. its bytes become entries                        core/decode.py               RecordDecoder.decode
4. an entry gets its user, date and hour           core/partition_key.py        Placer.place
5. and its type; it becomes a row of the batch     core/entry_types.py          EntryTypes.of
   (steps 3-5 are called from                      runtime/recorder.py          Recorder.record)
6. the batch is closed: which rows go where        core/pack_plan.py            plan_objects
7. each row is written once, objects are sealed    core/seal.py                 seal
8. objects are uploaded                            runtime/uploader.py
9. references, flush record, dead letters          core/announcements.py
10. and offsets are committed at once              adapters/kafka_committer.py  KafkaCommitter.commit
   (steps 6-10 are called from                     runtime/flusher.py           Flusher.flush)

When that happens is decided by core/machine.py and performed by runtime/controller.py; runtime/app.py puts
everything together. audit/ checks the result and shares nothing with the above but the formats.
"""
