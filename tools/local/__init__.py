"""The local stack: real Kafka and a real S3 API as plain processes on 127.0.0.1.

Needs JDK 17 and Maven (the first time, to fetch the jars); used by `make up`, `make demo` and the tests.
Order of the modules: jars -> processes -> kafka | s3 -> topics -> stack -> __main__; proxies beside them.
"""
