"""The configuration: one strict YAML file, every mistake reported at once with its place."""

from collector.config.models import (
    AdmitConfig,
    AlertmanagerConfig,
    BaselineConfig,
    Config,
    FollowConfig,
    IngestConfig,
    RetentionConfig,
    TargetConfig,
    TierConfig,
    WebhookConfig,
)
from collector.config.problems import ConfigError, Problem
from collector.config.reading import load
from collector.values import Listen

__all__ = [
    "AdmitConfig",
    "AlertmanagerConfig",
    "BaselineConfig",
    "Config",
    "ConfigError",
    "FollowConfig",
    "IngestConfig",
    "Listen",
    "Problem",
    "RetentionConfig",
    "TargetConfig",
    "TierConfig",
    "WebhookConfig",
    "load",
]
