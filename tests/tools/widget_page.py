"""A page that shows widgets as a notebook does.

It gives `widget.js` a model, and transfers messages between the page and the widgets of this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, Route

from page_visit import wait_until
from turnout_client.widgets import LiveWidget

_URL = "http://notebook.test/"
# The model that anywidget passes to a module, described at https://anywidget.dev/en/afm/.
_MODEL = """
export class Model {
  state = {}; sent = []; listeners = {};
  get(name) { return this.state[name]; }
  set(name, value) {
    this.state[name] = value;
    for (const call of this.listeners[`change:${name}`] ?? []) call();
  }
  on(name, call) { (this.listeners[name] ??= []).push(call); }
  off(name, call) { this.listeners[name] = (this.listeners[name] ?? []).filter((one) => one !== call); }
  send(message) { this.sent.push(message); }
}
"""
_SHOW = """async ([number, code, state]) => {
  const [{ Model }, { default: module }] = await Promise.all([import("/model.js"), import("/widget.js")]);
  const model = Object.assign(new Model(), { state });
  if (code) document.body.append(Object.assign(document.createElement("pre"), { textContent: code }));
  const el = Object.assign(document.createElement("div"), { id: `widget-${number}` });
  document.body.append(el);
  (window.widgets ??= []).push({ model, el, remove: module.render({ model, el }) });
}"""
# A page that follows the system's light or dark mode, like the theme of a notebook.
_STYLE = "body { margin: 16px; background: Canvas; color: CanvasText; color-scheme: light dark; }"


class WidgetPage:
    """A page with widgets; `showing` asserts that it has no foreign request and no error."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._widgets: list[LiveWidget[Any]] = []

    def show(self, widget: LiveWidget[Any], code: str = "") -> str:
        """Add a view of a widget, and return its selector."""
        self._widgets.append(widget)
        number = len(self._widgets) - 1
        self.page.evaluate(_SHOW, [number, code, _state(widget)])
        return f"#widget-{number}"

    def remove(self, number: int) -> None:
        """Remove a view, as a notebook does with an output."""
        self.page.evaluate("(number) => { widgets[number].remove(); widgets[number].el.remove(); }", number)

    def carry(self) -> None:
        """Transfer the sent messages in both directions."""
        for number, widget in enumerate(self._widgets):
            for message in self.page.evaluate("(number) => widgets[number].model.sent.splice(0)", number):
                widget._handle_custom_msg(message, [])
            for name, value in _state(widget).items():
                self.page.evaluate(
                    """([number, name, value]) => {
                      const { model } = widgets[number];
                      if (JSON.stringify(model.get(name)) !== JSON.stringify(value)) model.set(name, value);
                    }""",
                    [number, name, value],
                )

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition, and transfer messages meanwhile."""

        def met() -> bool:
            self.carry()
            return bool(condition())

        wait_until(met, what=what)


def _state(widget: LiveWidget[Any]) -> dict[str, Any]:
    return {"_shown": widget._shown, "_state": widget._state}


@contextmanager
def showing(browser: Browser, style: str = "", **options: Any) -> Iterator[WidgetPage]:
    """Open a page for widgets in a new tab."""
    key = (browser, repr(options))
    if key not in _contexts:
        _contexts[key] = browser.new_context(viewport={"width": 900, "height": 640}, **options)
    page = _contexts[key].new_page()
    wrong: list[str] = []
    # The same texts that a widget sends to a notebook.
    files = {
        "": ("text/html", f"<!doctype html><style>{LiveWidget._css}{_STYLE}{style}</style>"),
        "model.js": ("text/javascript", _MODEL),
        "widget.js": ("text/javascript", str(LiveWidget._esm)),
    }

    def answer(route: Route) -> None:
        kind, body = files.get(route.request.url.removeprefix(_URL), ("", ""))
        if not kind:
            wrong.append(route.request.url)
        route.fulfill(content_type=kind, body=body)

    page.route("**/*", answer)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    try:
        page.goto(_URL)
        yield WidgetPage(page)
        assert wrong == []
    finally:
        page.close()


_contexts: dict[tuple[Browser, str], BrowserContext] = {}
"""The contexts by browser and options; they are reused, because creating one costs as much as showing a widget."""
