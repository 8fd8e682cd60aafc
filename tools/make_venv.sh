#!/bin/sh
# Makes or repairs the virtual environment $1: the first suitable Python, then exactly the pinned packages.
set -eu
venv=$1

suitable() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if suitable "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo "No Python 3.11 or newer among: ${PYTHON:-python3, python3.13, python3.12, python3.11}." \
        "Install one, or name it: make PYTHON=/path/to/python" >&2
    exit 1
}

works() { suitable "$venv/bin/python" && "$venv/bin/python" -m uv --version >/dev/null 2>&1; }

# What was once finished and still works is updated in place; a run that was interrupted is begun anew.
if [ -f "$venv/.ready" ] && works; then
    rm "$venv/.ready"
else
    python=$(find_python)
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        echo "$python cannot make virtual environments: install its venv module" \
            "(Debian and Ubuntu: apt install python3-venv), or name another with make PYTHON=…" >&2
        exit 1
    fi
    echo "Making $venv with $("$python" --version), once."
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --require-hashes -r requirements/bootstrap.txt
fi

# uv does not read pip's configuration; whoever reaches the registry through a mirror has named it there.
if [ -z "${UV_DEFAULT_INDEX:-}" ] && mirror=$("$venv/bin/python" -m pip config get global.index-url 2>/dev/null); then
    export UV_DEFAULT_INDEX="$mirror"
fi

uv() { "$venv/bin/python" -m uv pip "$@" --quiet --python "$venv/bin/python"; }
uv sync --require-hashes requirements/dev.txt
# Without a build environment of its own, since everything it needs is pinned above.
uv install --no-deps --no-build-isolation --editable .
touch "$venv/.ready"
