"""What the dashboards are made of. Each panel has a title, a unit, and a question of an operator as its description; each
query is PromQL against the data source that a person chooses at the top of the dashboard.
"""

import dataclasses
import itertools
import string

from grafana_foundation_sdk.builders import bargauge, common as common_builders, dashboard, prometheus, stat, statetimeline
from grafana_foundation_sdk.builders import table, timeseries
from grafana_foundation_sdk.models import common, dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

TAG = "fluvial"
WIDTH = 24  # columns of a dashboard
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")

GOOD, WARNING, BAD, NEUTRAL = "green", "orange", "red", "blue"

# Of a certificate's life: renewing begins at half of it, and the alert sees it with a quarter left, then with a twelfth.
LIFE_LEFT = ((None, BAD), (0.083, WARNING), (0.25, GOOD))


def life_left(seconds):
    """The share of its life that a certificate has left. Where no coordinator is scraped, it is taken to be issued for a day."""
    return f"({seconds}) / on () group_left () (max(fluvial_coordinator_certificate_validity_seconds) or vector(86400))"


@dataclasses.dataclass(frozen=True)
class Query:
    expr: str
    legend: str = ""


def mean(histogram, by="", only=""):
    """Seconds a time; nothing when there was none."""
    keep = f" by ({by})" if by else ""
    total, count = (f"sum{keep} (rate({histogram}_{part}{only}[$__rate_interval]))" for part in ("sum", "count"))
    return f"{total} / ({count} > 0)"


def quantile(fraction, histogram, by=""):
    """Seconds within which that fraction of them is."""
    keep = f"{by}, le" if by else "le"
    return f"histogram_quantile({fraction}, sum by ({keep}) (rate({histogram}_bucket[$__rate_interval])))"


def _target(query, instant=False, form=PromQueryFormat.TIME_SERIES):
    target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).format(form).datasource(SOURCE)
    return target.instant() if instant else target.range()


def _common(panel, title, unit, question, width, height):
    assert title and unit and "?" in question, f"{title}: a title, a unit, and a question as description"
    return panel.title(title).description(question).unit(unit).datasource(SOURCE).span(width).height(height)


def _with_targets(panel, queries, **how):
    for query, letter in zip(queries, string.ascii_uppercase, strict=False):
        panel = panel.with_target(_target(query, **how).ref_id(letter))
    return panel


def _steps(panel, steps):
    """From which value on a number has which colour; None: from the least on."""
    made = [models.Threshold(value=value, color=color) for value, color in steps]
    return panel.thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(made))


def _words(panel, words):
    """A text and a colour for each of some values."""
    named = {str(value): models.ValueMappingResult(text=text, color=color, index=index)
             for index, (value, (text, color)) in enumerate(words.items())}
    return panel.mappings([models.ValueMap(options=named)])


def graph(title, unit, question, *queries, stacked=False, least=0.0, log=False, width=12, height=8):
    """Lines over time."""
    panel = _common(timeseries.Panel(), title, unit, question, width, height)
    panel = (panel.line_width(1).fill_opacity(30 if stacked else 8).show_points(common.VisibilityMode.AUTO)
             .legend(common_builders.VizLegendOptions().display_mode(common.LegendDisplayMode.TABLE)
                     .placement(common.LegendPlacement.BOTTOM).show_legend(True).calcs(["lastNotNull", "max"]))
             .tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
                      .sort(common.SortOrder.DESCENDING)))
    if least is not None:
        panel = panel.axis_soft_min(least)
    if stacked:
        panel = panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    if log:
        panel = panel.scale_distribution(
            common_builders.ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(10))
    return _with_targets(panel, queries)


def number(title, unit, question, expr, steps=((None, NEUTRAL),), words=None, legend="", width=4, height=4):
    """The value now, with a colour that says whether it is good."""
    panel = _common(stat.Panel(), title, unit, question, width, height)
    panel = (panel.color_mode(common.BigValueColorMode.VALUE).graph_mode(common.BigValueGraphMode.NONE)
             .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"])))
    panel = _steps(panel, steps)
    if words:
        panel = _words(panel, words)
    if legend:
        panel = panel.text_mode(common.BigValueTextMode.VALUE_AND_NAME)
    return _with_targets(panel, [Query(expr, legend)], instant=True)


def states(title, question, *queries, words, width=WIDTH, height=6):
    """What something was when, by a word and a colour for each value."""
    panel = _common(statetimeline.Panel(), title, "none", question, width, height)
    panel = (_words(panel, words).show_value(common.VisibilityMode.NEVER).row_height(0.8).fill_opacity(80)
             .legend(common_builders.VizLegendOptions().display_mode(common.LegendDisplayMode.LIST)
                     .placement(common.LegendPlacement.BOTTOM).show_legend(True)))
    return _with_targets(panel, queries)


def bars(title, unit, question, *queries, steps=((None, NEUTRAL),), width=12, height=8):
    """The values now, side by side, the names at the left."""
    panel = _common(bargauge.Panel(), title, unit, question, width, height)
    panel = (panel.orientation(common.VizOrientation.HORIZONTAL).display_mode(common.BarGaugeDisplayMode.BASIC)
             .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"])).min(0))
    return _with_targets(_steps(panel, steps), queries, instant=True)


def listing(title, unit, question, query, hidden=(), width=WIDTH, height=7):
    """A table with a row a series; columns named in `hidden` are left out."""
    panel = _common(table.Panel(), title, unit, question, width, height)
    left_out = {name: True for name in ("Time", "__name__", "job", *hidden)}
    panel = panel.with_transformation(models.DataTransformerConfig(id_val="organize", options={"excludeByName": left_out}))
    return _with_targets(panel, [query], instant=True, form=PromQueryFormat.TABLE)


def chosen(name, label, about, query):
    """A variable whose values are those of a label: one is chosen at the top of the dashboard."""
    return (dashboard.QueryVariable(name).label(label).description(about).datasource(SOURCE).query(query)
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.ALPHABETICAL_ASC))


def board(uid, title, about, variables, rows):
    """rows: (title, panels)."""
    made = (dashboard.Dashboard(title).uid(uid).description(about).tags([TAG]).readonly().refresh("30s")
            .time("now-3h", "now").timezone("browser").tooltip(models.DashboardCursorSync.CROSSHAIR))
    made = made.link(dashboard.DashboardLink("Fluvial").type(models.DashboardLinkType.DASHBOARDS).tags([TAG])
                     .as_dropdown(True).keep_time(True).include_vars(True))
    made = made.annotation(
        dashboard.AnnotationQuery().name("alerts").datasource(SOURCE).enable(True).icon_color(BAD)
        .expr('ALERTS{alertname=~"Fluvial.*", alertstate="firing"}'))
    made = made.with_variable(dashboard.DatasourceVariable("datasource").label("data source").type("prometheus"))
    for variable in variables:
        made = made.with_variable(variable)
    ids = itertools.count(1)
    for row, panels in rows:
        made = made.with_row(dashboard.Row(row).id(next(ids)))
        for panel in panels:
            made = made.with_panel(panel.id(next(ids)))
    return made.build()
