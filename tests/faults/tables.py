"""The tables of the rig and the names of its handlers, for its processes and for the judge."""

from __future__ import annotations

import os

from attrs import frozen

DDL = """
CREATE TABLE faults_counters (
  id uuid PRIMARY KEY, n bigint NOT NULL, version bigint NOT NULL DEFAULT 0, revision bigint NOT NULL DEFAULT 1);
CREATE TABLE faults_turns (handler text, aggregate_id uuid, taken bigint NOT NULL, PRIMARY KEY (handler, aggregate_id));
CREATE TABLE faults_effects (
  handler text NOT NULL, event_id uuid NOT NULL, aggregate_id uuid NOT NULL, aggregate_version bigint NOT NULL,
  turn bigint NOT NULL, process_id int NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON faults_effects (event_id, handler);
CREATE TABLE faults_spells (event_id uuid PRIMARY KEY, times int NOT NULL);
CREATE TABLE faults_strangers (note text);
"""

# No unique key, so that a repeated effect shows. The turn is taken under a row lock that is held until the
# commit, so turns of one handler and aggregate are in the order of their commits.
EFFECT = """
WITH turn AS (
  INSERT INTO faults_turns AS present VALUES ($1, $2, 1)
  ON CONFLICT (handler, aggregate_id) DO UPDATE SET taken = present.taken + 1 RETURNING taken
)
INSERT INTO faults_effects (handler, aggregate_id, event_id, aggregate_version, process_id, turn)
SELECT $1, $2, $3, $4, $5, taken FROM turn
"""


@frozen
class Promise:
    """What is promised of a handler of the rig."""

    handler: str
    once: bool = True
    ordered: bool = True


TRANSACTIONAL = Promise("faults.transactional")
PLAIN = Promise("faults.plain", once=False)
UNORDERED = Promise("faults.unordered", ordered=False)
CONTINUES = Promise("faults.continues")
FLAKY = Promise("faults.flaky")
UNRULY = Promise("faults.unruly")

# Carried by every relay unless a cell says otherwise; of many events fewer handlers have their effects sooner.
_ASKED_FOR = os.environ.get("FAULTS_HANDLERS", "transactional,plain,unordered,continues,flaky")
USUAL = tuple(
    each
    for each in (TRANSACTIONAL, PLAIN, UNORDERED, CONTINUES, FLAKY)
    if each.handler.removeprefix("faults.") in _ASKED_FOR.split(",")
)
RENAMED_TRANSACTIONAL = "faults.renamed"


def rejects(event_id_hex: str) -> bool:
    """Whether the handler that lets later events pass rejects this one, whoever runs it."""
    return int(event_id_hex[-4:], 16) % 50 == 0
