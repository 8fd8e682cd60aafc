"""The shop's sessions: asynchronous ones for its API, synchronous ones for its scripts."""

import os

from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

_url = os.environ["DATABASE_URL"]

engine = create_async_engine(_url.replace("postgresql://", "postgresql+asyncpg://"))
Session = async_sessionmaker(engine, expire_on_commit=False)
ScriptSession = sessionmaker(create_engine(_url.replace("postgresql://", "postgresql+psycopg://")))
