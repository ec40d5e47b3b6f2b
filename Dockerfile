# log-partitioner: one process, no shell needed, nothing written outside the spool volume.
# Every package comes from a lock file with its hash, setuptools for the build included.

# The fast lane, by Debian's Rust; crates come from Cargo.lock with their hashes.
FROM python:3.12-slim-trixie AS native
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
RUN apt-get update && apt-get install --yes --no-install-recommends cargo gcc libc6-dev
COPY requirements-build.lock ./
RUN python -m pip install --require-hashes --only-binary :all: -r requirements-build.lock
COPY native ./native
RUN python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist ./native

FROM python:3.12-slim-trixie AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
RUN python -m venv --without-pip /opt/log-partitioner
COPY requirements.lock requirements-formats.lock requirements-msk.lock requirements-build.lock ./
# requirements-formats.lock adds what input.format = text needs, requirements-msk.lock what kafka.auth = msk-iam does, too.
ARG REQUIREMENTS=requirements.lock
# Only wheels: nothing is compiled here.
RUN python -m pip --python /opt/log-partitioner install --require-hashes --only-binary :all: -r "$REQUIREMENTS" \
 && python -m pip install --require-hashes --only-binary :all: -r requirements-build.lock
# README and LICENSE are the package's description; a tree without them still builds.
COPY pyproject.toml README.md* LICENSE* ./
COPY service ./service
COPY --from=native /build/dist ./dist
RUN python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && python -m pip --python /opt/log-partitioner install --no-deps dist/*.whl

FROM python:3.12-slim-trixie
COPY --from=build /opt/log-partitioner /opt/log-partitioner
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
USER 65532:65532
WORKDIR /
ENTRYPOINT ["log-partitioner"]
CMD ["run"]
