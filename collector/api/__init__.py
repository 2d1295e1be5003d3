"""HTTP routes."""

from fastapi import APIRouter

from collector.api import annotations, breakers, ingest, limits, otlp, service, tiers

ROUTERS = (
    service.router,
    ingest.router,
    otlp.router,
    tiers.router,
    breakers.router,
    limits.router,
    annotations.router,
)


def all_routes() -> APIRouter:
    """Return a router with every route of the API."""
    routes = APIRouter()
    for router in ROUTERS:
        routes.include_router(router)
    return routes
