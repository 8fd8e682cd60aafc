#!/bin/sh
# The suite, measured, mostly in two processes at once; with arguments, what they name, in one.
set -u
measured() { .venv/bin/coverage run -m pytest --durations=15 "$@"; }

.venv/bin/coverage erase
rm -f build/left-out
if [ $# -gt 0 ]; then
    measured "$@"
    exit
fi
mkdir -p build
log=build/commands-and-servers.log
measured tests/e2e tests/faults tests/hostile >"$log" 2>&1 &
other=$!
trap 'kill $other 2>/dev/null' INT TERM
measured tests/unit tests/house tests/conformance tests/properties tests/integration --ignore=tests/integration/relay
first_code=$?
echo "What starts commands and servers is under way: see $log."
wait $other
other_code=$?
cat "$log"
# After the others, since leases and deadlines in it are real: a server that is busy with more stands still for seconds.
log=build/brokers.log
measured tests/integration/relay/rabbitmq tests/integration/relay/telemetry >"$log" 2>&1 &
other=$!
measured tests/integration/relay --ignore=tests/integration/relay/rabbitmq --ignore=tests/integration/relay/telemetry
relay_code=$?
echo "What needs a broker is under way: see $log."
wait $other
broker_code=$?
cat "$log"
[ $first_code -eq 0 ] && [ $other_code -eq 0 ] && [ $relay_code -eq 0 ] && [ $broker_code -eq 0 ]
