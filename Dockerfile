# Two images on one base: of the worker (`docker build .`, the last stage) and of the pipeline's jobs (`--target pipeline`).
# Packages, crates and jars come from lock files with their hashes, and so does what builds wheels; nothing is fetched at
# run time. The base may come from a mirror, and is named by its digest in a release: --build-arg BASE=NAME@sha256:...
ARG BASE=python:3.12-slim-trixie

FROM ${BASE} AS builder
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY requirements-build.lock ./
RUN python -m pip install --require-hashes --only-binary :all: -r requirements-build.lock \
 && python -m venv --without-pip /opt/log-partitioner

# The wheels of this repository. The fast lane is built by Debian's Rust; maturin puts the SBOM of its crates into the wheel.
FROM builder AS wheels
RUN apt-get update && apt-get install --yes --no-install-recommends cargo gcc libc6-dev
COPY native ./native
RUN python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist ./native \
 && for crate in ~/.cargo/registry/src/*/*; do install -D -m 644 -t "licenses/${crate##*/}" "$crate"/LICENSE*; done
# README and LICENSE are the package's description; a tree without them still builds.
COPY pyproject.toml README.md* LICENSE* ./
COPY service ./service
COPY pipeline ./pipeline
RUN python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist .

FROM builder AS worker-packages
COPY requirements.lock requirements-formats.lock requirements-msk.lock pyproject.toml ./
# requirements-formats.lock adds what input.format = text needs, requirements-msk.lock what kafka.auth = msk-iam does, too.
ARG REQUIREMENTS=requirements.lock
# Only wheels: nothing is compiled here.
RUN python -m pip --python /opt/log-partitioner install --require-hashes --only-binary :all: -r "$REQUIREMENTS"
COPY --from=wheels /build/dist ./dist
RUN python -m pip --python /opt/log-partitioner install --no-deps dist/*.whl \
 && cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o python.cdx.json /opt/log-partitioner

FROM builder AS pipeline-packages
COPY requirements-pipeline.lock pyproject.toml ./
# PySpark is published as source only; it compiles nothing.
RUN python -m pip wheel --require-hashes --no-build-isolation --only-binary :all: --no-binary pyspark --wheel-dir locked \
      -r requirements-pipeline.lock \
 && python -m pip --python /opt/log-partitioner install --no-deps locked/*.whl && rm -r locked
COPY --from=wheels /build/dist ./dist
RUN python -m pip --python /opt/log-partitioner install --no-deps dist/*.whl \
 && cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o python.cdx.json /opt/log-partitioner

FROM builder AS jars
# Java's packages end with an error where slim images lack the directory of manual pages (debuerreotype issue 10).
RUN mkdir -p /usr/share/man/man1 && apt-get update && apt-get install --yes --no-install-recommends maven
COPY pipeline/pom.xml pipeline/log_partitioner_pipeline/jars.lock ./
RUN mvn --batch-mode --quiet generate-resources cyclonedx:makeBom -Djars.home=/jars
WORKDIR /jars
RUN sha256sum -- * > /build/fetched.lock && cmp /build/fetched.lock /build/jars.lock

# Driver and executors of Spark on Kubernetes are of this one image, too.
FROM ${BASE} AS pipeline
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update \
 && apt-get install --yes --no-install-recommends default-jre-headless procps \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
 # Hadoop's client asks for the name of the user that it runs as.
 && useradd --uid 65532 --user-group --no-create-home --home-dir /work spark \
 && install -d -o 65532 -g 65532 -m 0750 /work
COPY --from=wheels /build/licenses /usr/share/doc/log-partitioner/crates
COPY --from=jars /jars /opt/log-partitioner/jars
COPY --from=jars /build/target/jars.cdx.json /usr/share/doc/log-partitioner/
COPY --from=pipeline-packages /opt/log-partitioner /opt/log-partitioner
COPY --from=pipeline-packages /build/python.cdx.json /usr/share/doc/log-partitioner/
COPY --chmod=0755 pipeline/entrypoint.sh /opt/log-partitioner/bin/pipeline-entrypoint
# What spark-submit runs: local:///opt/log-partitioner/pipeline.py JOB
COPY pipeline/log_partitioner_pipeline/__main__.py /opt/log-partitioner/pipeline.py
ENV PATH=/opt/log-partitioner/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PYSPARK_PYTHON=/opt/log-partitioner/bin/python \
    SPARK_LOCAL_DIRS=/work \
    PIPELINE_SPARK__JARS_DIRECTORY=/opt/log-partitioner/jars
# Spark's scratch space, and the SQLite catalogue where nothing else is set. Java's libraries unpack themselves into /tmp and
# are run from there, which a tmpfs of Docker's does not let them.
VOLUME /work /tmp
USER 65532:65532
WORKDIR /work
ENTRYPOINT ["pipeline-entrypoint"]
CMD ["--help"]
ARG VERSION REVISION SOURCE
LABEL org.opencontainers.image.title="log-partitioner-pipeline" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.source="$SOURCE"

# One process, no shell needed; it writes to the spool volume, and to /tmp while it compiles Protobuf.
FROM ${BASE} AS worker
COPY --from=wheels /build/licenses /usr/share/doc/log-partitioner/crates
COPY --from=worker-packages /opt/log-partitioner /opt/log-partitioner
COPY --from=worker-packages /build/python.cdx.json /usr/share/doc/log-partitioner/
# The chart mounts an emptyDir here; a plain `docker run --read-only` gets an anonymous volume.
RUN install -d -o 65532 -g 65532 -m 0750 /var/spool/log-partitioner
# Without a bound each thread may take an arena of its own, eight for each CPU of the node: docs/SIZING.md, Memory.
ENV PATH=/opt/log-partitioner/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    MALLOC_ARENA_MAX=4 \
    LOGP_SPOOL__DIRECTORY=/var/spool/log-partitioner
VOLUME /var/spool/log-partitioner
# /livez /readyz /metrics
EXPOSE 8080
# Kubernetes has probes of its own. Bash asks in a few milliseconds of CPU; a Python would take a hundred.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/${LOGP_HTTP__PORT:-8080}; printf 'GET /livez HTTP/1.0\\r\\n\\r\\n' >&3; mapfile <&3; [[ $MAPFILE == *' 200 '* ]]"]
USER 65532:65532
WORKDIR /
ENTRYPOINT ["log-partitioner"]
CMD ["run"]
ARG VERSION REVISION SOURCE
LABEL org.opencontainers.image.title="log-partitioner" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.source="$SOURCE"
