"""Pictures of every page in both themes for docs/explorer: ``make screenshots``."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.browser.served import browser, served, settled, visit

FOLDER = Path(__file__).parents[2] / "docs" / "explorer"
_B = "vllm+serve+meta-llama/Llama-3.1-8B+--max-model-len+16384+--max-num-batched-tokens+1024"
#: Name of the picture: address.
PAGES = {
    "fits": "",
    "what_if": "what_if",
    "compare": f"compare?rate=30&b_server={_B}",
    "capacity": "capacity",
    "trust": "trust",
}


def picture(chromium: Browser, site: str, name: str, *, dark: bool) -> None:
    """Write one picture."""
    page = visit(chromium, f"{site}/{PAGES[name]}", dark=dark, height=1100)
    if name == "capacity":
        page.get_by_role("button", name="Find the capacity").click()
        expect(page.locator(".sc-answer").first).to_contain_text("This server carries", timeout=300_000)
    settled(page, 300)
    path = FOLDER / f"{name}_{'dark' if dark else 'light'}.png"
    page.screenshot(path=path)
    _smaller(path)
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")
    page.context.close()


def _smaller(path: Path) -> None:
    """Keep 128 colours: a third of the size, and nobody sees it."""
    from PIL import Image

    with Image.open(path) as image:
        image.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with served() as site, browser() as chromium:
        for name in PAGES:
            for dark in (False, True):
                picture(chromium, site, name, dark=dark)


if __name__ == "__main__":
    main()
