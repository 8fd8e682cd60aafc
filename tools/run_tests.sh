#!/bin/sh
# The suite, measured, mostly in two processes at once; with arguments, what they name, in one.
set -u
measured() { .venv/bin/coverage run -m pytest "$@"; }

.venv/bin/coverage erase
rm -f build/left-out
if [ $# -gt 0 ]; then
    measured "$@"
    exit
fi
mkdir -p build
log=build/commands-and-servers.log
measured tests/e2e tests/faults tests/hostile tests/integration \
    --ignore=tests/integration/relay --ignore=tests/integration/capture >"$log" 2>&1 &
other=$!
trap 'kill $other 2>/dev/null' INT TERM
measured tests/unit tests/conformance tests/properties tests/integration/capture
first_code=$?
echo "What starts commands and servers is under way: see $log."
wait $other
other_code=$?
cat "$log"
# Alone, since leases and deadlines in it are real: a server that is busy with the others stands still for seconds.
measured tests/integration/relay
relay_code=$?
[ $first_code -eq 0 ] && [ $other_code -eq 0 ] && [ $relay_code -eq 0 ]
