#!/bin/sh
# The suite, three parts of it at once; with arguments, what they name, in one process.
set -u
measured() { .venv/bin/coverage run -m pytest --durations=15 "$@"; }
# To be traced doubles what Python takes, and laws go a thousand times through lines where others go, too.
unmeasured() { .venv/bin/pytest --durations=15 "$@"; }

.venv/bin/coverage erase
rm -f build/left-out
if [ $# -gt 0 ]; then
    measured "$@"
    exit
fi
mkdir -p build
failed=0
parts=""
start() {
    log=build/$1.log
    shift
    "$@" >"$log" 2>&1 &
    parts="$parts $log=$!"
}
finish() {
    echo "Under way, each with its log:$parts"
    for part in $parts; do
        wait "${part#*=}" || failed=1
        cat "${part%=*}"
    done
    parts=""
}
trap 'for part in $parts; do kill "${part#*=}"; done' INT TERM

start commands measured tests/e2e --ignore=tests/e2e/browser
start parts measured tests/unit tests/conformance tests/properties/test_decoding.py tests/integration \
    --ignore=tests/integration/relay
start laws unmeasured tests/house tests/properties tests/hostile tests/faults tests/e2e/browser \
    --ignore=tests/properties/test_decoding.py
finish
# After the others, since leases and deadlines in it are real: a server that is busy with more stands still for seconds.
start relay measured tests/integration/relay/test_[a-p]*.py
start relay-too measured tests/integration/relay/test_[q-z]*.py
start brokers measured tests/integration/relay/rabbitmq tests/integration/relay/telemetry
finish
exit $failed
