"""A page as a reader's parser sees it: elements, attributes, texts; refuses what is not well-formed."""

from html.parser import HTMLParser

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """The parsed page; `text` is what a person can read, without styles."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.styles: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    @property
    def text(self) -> str:
        """All texts, white space as a browser shows it."""
        return " ".join(" ".join(self.texts).split())

    def attributes(self, *names: str) -> list[str]:
        """Values of these attributes, wherever they are."""
        return [value or "" for _, found in self.elements for name, value in found.items() if name in names]

    def count(self, tag: str, *, of_class: str | None = None) -> int:
        """How many elements there are."""
        return sum(
            one == tag and (of_class is None or of_class in (found.get("class") or "").split())
            for one, found in self.elements
        )

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        assert len({name for name, _ in attrs}) == len(attrs), f"an attribute twice: {attrs}"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take an element of SVG that closes itself."""
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Close the innermost element."""
        assert self._open.pop() == tag, f"</{tag}> closes another"

    def handle_data(self, data: str) -> None:
        """Take a text."""
        (self.styles if self._open[-1:] == ["style"] else self.texts).append(data)
