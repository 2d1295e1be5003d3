"""HTTP routes."""

from fastapi import APIRouter

from collector.api import breakers, ingest, service, tiers


def all_routes() -> APIRouter:
    """Return a router with every route of the API."""
    routes = APIRouter()
    for part in (service, ingest, tiers, breakers):
        routes.include_router(part.router)
    return routes
