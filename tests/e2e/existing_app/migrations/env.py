import os

from alembic import context
from shop.models import Base
from sqlalchemy import create_engine


def run() -> None:
    engine = create_engine(os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        context.configure(
            connection=connection,
            target_metadata=Base.metadata,
        )
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()


run()
