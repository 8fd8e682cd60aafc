"""What the kernel knows of a class that SQLAlchemy has mapped, without importing it.

Its mapper keeps a manager on the class, and a state beside each instance. Their names are no promise of SQLAlchemy's,
so that they stand here alone; `infrastructure/outbox/sqlalchemy_inside.py` lists them with all others.
"""

from __future__ import annotations

from typing import Any


def manager_of(cls: type[Any]) -> Any:
    """Return the manager of a class's attributes, if it is mapped; a subclass that is not has none."""
    return vars(cls).get("_sa_class_manager")


def stored_names(cls: type[Any]) -> list[str]:
    """Return the attributes of a mapped class that its rows hold; what is composed of others is theirs."""
    attributes = manager_of(cls).items()
    return [name for name, attribute in attributes if not attribute._is_internal_proxy]


def is_deleted(instance: object) -> bool:
    """Whether the row of a mapped instance is deleted in the transaction that is open."""
    state = mapper_state_of(instance)
    return state is not None and bool(state.deleted)


def mapper_state_of(instance: object) -> Any:
    """Return what a mapper keeps beside an instance, if its class is mapped."""
    return getattr(instance, "__dict__", {}).get("_sa_instance_state")
