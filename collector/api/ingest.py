"""Intake of logged generations over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

router = APIRouter(prefix="/v1/ingest", tags=["ingest"])
Name = Annotated[str, Query(max_length=128)]
