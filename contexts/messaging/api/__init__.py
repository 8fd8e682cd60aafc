"""Messages over HTTP. Each is of the account that the token names, and there for no other."""

from fastapi import APIRouter

from contexts.messaging.api import group_messages, scheduled_messages

router = APIRouter()
router.include_router(group_messages.router)
router.include_router(scheduled_messages.router)

__all__ = ["router"]
