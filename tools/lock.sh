#!/bin/sh
# Pins requirements/*.txt: one answer for every platform and every Python from 3.11 on, with hashes.
set -eu
compile() {
    output=$1
    shift
    .venv/bin/python -m uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --output-file "$output" "$@"
}
compile requirements/bootstrap.txt requirements/bootstrap.in
compile requirements/dev.txt --extra contexts --extra dashboard --extra embedded --extra fast --extra http \
    --extra psycopg --extra rabbitmq --extra sealed --extra telemetry \
    --constraint requirements/bootstrap.txt pyproject.toml requirements/dev.in
.venv/bin/python tools/sbom.py
