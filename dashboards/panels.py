"""What the panels of all boards share: colours, no-data appearance, units, layout, numbering.

A panel is described here as data and built with grafana-foundation-sdk in one place, because the
SDK sets neither ids nor refIds and lets panels run over the edge of the grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

from grafana_foundation_sdk.builders import common, dashboard, stat, statetimeline, timeseries
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models

from exporters.catalog import Metric

GREEN, YELLOW, RED, PURPLE, GREY, BLUE = "green", "yellow", "red", "purple", "#808080", "blue"
COLUMNS = 24
GRAPH_HEIGHT, STAT_HEIGHT = 8, 4
NO_DATA = "no data"

Kind: TypeAlias = Literal["stat", "lines", "bars", "timeline"]
Builder: TypeAlias = stat.Panel | timeseries.Panel | statetimeline.Panel
Texts: TypeAlias = Mapping[str, tuple[str, str]]  # value -> shown text, colour
Steps: TypeAlias = Sequence[tuple[float, str]]  # from this value on -> colour

BREAKER_TEXTS: Texts = MappingProxyType(
    {"0": ("closed", GREEN), "1": ("half open", YELLOW), "2": ("open", RED)}
)
LEVEL_TEXTS: Texts = MappingProxyType(
    {
        "-1": ("unknown", GREY),
        "0": ("ok", GREEN),
        "1": ("warning", YELLOW),
        "2": ("critical", RED),
    }
)


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a panel; a `limit` is drawn dashed and red."""

    expr: str
    legend: str = ""
    limit: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `metric` is named at the end of its description; `unit` is Grafana's id.

    `steps` colour a value from a threshold on, `base` below the first; without steps the colours
    mean nothing and are neutral.
    """

    kind: Kind
    title: str
    description: str
    metric: Metric
    unit: str
    queries: Sequence[Query]
    width: int
    texts: Texts = field(default_factory=dict)
    steps: Steps = ()
    base: str = BLUE
    decimals: int | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A titled row of panels, filled from the left in lines of 24 columns."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable whose values are those of `label` in `metric`, chosen several or all."""

    name: str
    title: str
    metric: Metric
    label: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard; `uid` is fixed, since links and provisioning go by it."""

    uid: str
    title: str
    description: str
    variables: Sequence[Variable]
    rows: Sequence[Row]


def render_board(board: Board) -> str:
    """Return the dashboard as JSON, the same text for the same board.

    Raises:
        ValueError: If the panels of a row do not fill lines of 24 columns.
    """
    built = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags(["fusewire"])
        .timezone("browser")
        .refresh("30s")
        .time("now-1h", "now")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
    )
    for variable in board.variables:
        built.with_variable(_variable(variable))
    number, top = 1, 0
    for row in board.rows:
        built.with_row(_row(row, number, top))
        number, top = number + 1, top + 1
        for panel, place in _places(row, top):
            built.with_panel(_build(panel).id(number).grid_pos(place))
            number, top = number + 1, max(top, place.y + place.h)
    return JSONEncoder(sort_keys=True, indent=2).encode(built.build()) + "\n"


def _source() -> models.DataSourceRef:
    return models.DataSourceRef(type_val="prometheus", uid="${datasource}")


def _variable(variable: Variable) -> dashboard.QueryVariable:
    selector = f"{{{variable.where}}}" if variable.where else ""
    return (
        dashboard.QueryVariable(variable.name)
        .label(variable.title)
        .datasource(_source())
        .query(f"label_values({variable.metric.name}{selector}, {variable.label})")
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)  # noqa: FBT003  # the SDK's signature
        .include_all(True)  # noqa: FBT003  # as above
        .all_value(".*")
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
    )


def _row(row: Row, number: int, top: int) -> dashboard.Row:
    place = models.GridPos(h=1, w=COLUMNS, x=0, y=top)
    return dashboard.Row(row.title).id(number).grid_pos(place)


def _places(row: Row, top: int) -> list[tuple[Panel, models.GridPos]]:
    """Return where each panel stands, lines of 24 columns below one another."""
    places = []
    left, tallest = 0, 0
    for panel in row.panels:
        height = STAT_HEIGHT if panel.kind == "stat" else GRAPH_HEIGHT
        places.append((panel, models.GridPos(h=height, w=panel.width, x=left, y=top)))
        left, tallest = left + panel.width, max(tallest, height)
        if left == COLUMNS:
            left, top, tallest = 0, top + tallest, 0
    if left or any(place.x + place.w > COLUMNS for _, place in places):
        msg = f"row {row.title!r}: the widths of its panels must fill lines of {COLUMNS} columns"
        raise ValueError(msg)
    return places


def _build(panel: Panel) -> Builder:
    if panel.kind == "stat":
        return _finish(_stat(), panel)
    if panel.kind == "timeline":
        return _finish(_timeline(), panel)
    lines = _lines(bars=panel.kind == "bars")
    for place, query in enumerate(panel.queries):
        if query.limit:
            dash = {"fill": "dash", "dash": [8, 8]}
            color = {"mode": "fixed", "fixedColor": RED}
            lines.override_by_query(
                _ref(place),
                [
                    models.DynamicConfigValue("custom.lineStyle", dash),
                    models.DynamicConfigValue("custom.fillOpacity", 0),
                    models.DynamicConfigValue("color", color),
                ],
            )
    return _finish(lines, panel)


def _stat() -> stat.Panel:
    return (
        stat.Panel()
        .color_mode(common_models.BigValueColorMode.BACKGROUND)
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )


def _timeline() -> statetimeline.Panel:
    return (
        statetimeline.Panel()
        .show_value(common_models.VisibilityMode.NEVER)
        .merge_values(True)  # noqa: FBT003  # the SDK's signature
        .row_height(0.9)
        .fill_opacity(80)
        .line_width(0)
        .legend(_legend([]))
    )


def _lines(*, bars: bool) -> timeseries.Panel:
    style = common_models.GraphDrawStyle.BARS if bars else common_models.GraphDrawStyle.LINE
    return (
        timeseries.Panel()
        .draw_style(style)
        .line_width(1)
        .fill_opacity(60 if bars else 8)
        .show_points(common_models.VisibilityMode.NEVER)
        .span_nulls(False)  # noqa: FBT003  # a gap is shown as a gap
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
        .legend(_legend(["lastNotNull", "max"]))
    )


def _legend(calcs: list[str]) -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .show_legend(True)  # noqa: FBT003  # the SDK's signature
        .display_mode(common_models.LegendDisplayMode.LIST)
        .placement(common_models.LegendPlacement.BOTTOM)
        .calcs(calcs)
    )


def _finish(builder: Builder, panel: Panel) -> Builder:
    """Set what every panel has, whatever its kind."""
    builder.title(panel.title).datasource(_source()).unit(panel.unit).no_value(NO_DATA)
    builder.description(f"{panel.description}\n\nMetric: {panel.metric.name}")
    builder.mappings(_mappings(panel.texts)).thresholds(_thresholds(panel))
    color = (
        models.FieldColorModeId.THRESHOLDS
        if panel.steps or panel.kind in ("stat", "timeline")
        else models.FieldColorModeId.PALETTE_CLASSIC
    )
    builder.color_scheme(dashboard.FieldColor().mode(color))
    if panel.decimals is not None:
        builder.decimals(panel.decimals)
    if panel.most is not None:
        builder.min(0).max(panel.most)
    for place, query in enumerate(panel.queries):
        builder.with_target(_target(query, _ref(place), instant=panel.kind == "stat"))
    return builder


def _ref(place: int) -> str:
    return chr(ord("A") + place)


def _target(query: Query, ref: str, *, instant: bool) -> Dataquery:
    target = Dataquery().expr(query.expr).legend_format(query.legend or "__auto")
    target.ref_id(ref).datasource(_source())
    return target.instant() if instant else target.range()


def _mappings(texts: Texts) -> list[models.ValueMapping]:
    """Return the texts of values, and grey for no data: nothing known must not look green."""
    nothing = models.DashboardSpecialValueMapOptions(
        match=models.SpecialValueMatch.NULL_AND_NAN,
        result=models.ValueMappingResult(text=NO_DATA, color=GREY),
    )
    mappings: list[models.ValueMapping] = [models.SpecialValueMap(options=nothing)]
    if texts:
        options = {
            value: models.ValueMappingResult(text=text, color=color, index=place)
            for place, (value, (text, color)) in enumerate(texts.items())
        }
        mappings.append(models.ValueMap(options=options))
    return mappings


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    steps = [models.Threshold(value=None, color=panel.base)]
    steps.extend(models.Threshold(value=value, color=color) for value, color in panel.steps)
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)
