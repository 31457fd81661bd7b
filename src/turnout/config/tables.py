"""What a configuration makes of a plan: the plan that it begins with, and the tables of a generation."""

from turnout.config.settings import Settings
from turnout.plan.plan import Plan
from turnout.plan.tables import Layout, SourceTable, joined_view, own_view


def first_plan(settings: Settings) -> Plan:
    """The plan of a configuration, before any control message."""
    return Plan(
        topics={name: source.topic for name, source in settings.sources.items()},
        joins={name: settings.views[name].join for name in settings.joined_views},
        start=settings.start,
    )


def layout_of(settings: Settings, plan: Plan) -> Layout:
    """The tables of a generation that is built from this plan."""
    sources = {
        name: SourceTable(
            source=name,
            topic=plan.topics[name],
            table=source.table,
            key=source.key,
            columns=source.columns,
            latest=source.rows == "latest",
            max_rows=source.max_rows,
            form=source.format.value,
        )
        for name, source in settings.sources.items()
    }
    views = []
    for name, view in settings.views.items():
        read = [sources[source] for source in view.read]
        if view.sql is None:
            views.append(joined_view(name, read, plan.joins[name], view.duplicates))
        else:
            views.append(own_view(name, read, view.on, view.columns, view.sql))
    return Layout(tuple(sources.values()), tuple(views))
