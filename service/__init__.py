"""log-partitioner: Kafka records in, Avro files by user / date / hour and committed references to them out.

The path of the data:

1. a record leaves the client library              adapters/kafka_consumer.py   KafkaConsumer.consume
2. it is accepted, or refused and read again       runtime/runloop.py           Runloop.turn
3. its bytes become entries                        core/decode.py               RecordDecoder.decode
4. an entry gets its user, date and hour           core/partition_key.py        Placer.place
5. and becomes a row under a schema that grows     core/partition_file.py       PartitionFile.append
   (steps 3-5 are called from                      runtime/recorder.py          Recorder.record)
6. files are sealed and uploaded                   runtime/flusher.py           Flusher.flush
7. references, flush record, dead letters          core/announcements.py
8. and offsets are committed at once               adapters/kafka_committer.py  KafkaCommitter.commit

When that happens is decided by core/machine.py and performed by runtime/controller.py; runtime/app.py puts
everything together. audit/ checks the result and shares nothing with the above but the formats.
"""
