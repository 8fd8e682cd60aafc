#!/bin/sh
# The suite, measured, in two processes of about equal length; with arguments, what they name, in one.
set -u
measured() { .venv/bin/coverage run -m pytest "$@"; }

.venv/bin/coverage erase
rm -f build/left-out
if [ $# -gt 0 ]; then
    measured "$@"
    exit
fi
mkdir -p build
log=build/second-half.log
measured tests/e2e tests/faults tests/properties >"$log" 2>&1 &
second=$!
trap 'kill $second 2>/dev/null' INT TERM
measured tests/unit tests/conformance tests/integration
first_code=$?
echo "The other half, tests/e2e, tests/faults and tests/properties, is under way: see $log."
wait $second
second_code=$?
cat "$log"
[ $first_code -eq 0 ] && [ $second_code -eq 0 ]
