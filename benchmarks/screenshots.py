"""Makes the pictures in `docs/img`: pages of dry runs in a real browser, in light and dark, large and small.

make test-browser  # installs what it needs
python -m benchmarks.screenshots
"""

import io
import shutil
import tempfile
import threading
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import dsopt
from benchmarks.scale import Worker
from dsopt.api.storage import open_store
from dsopt.web.server import DashboardServer

IMAGES = Path(__file__).parent.parent / "docs" / "img"
SHOWN_FOLDER = "/home/me/train"  # in place of the temporary one
STUDIES = {"llama-3-8b": "llama-3-8b", "bert-large": "bert-large", "my-study": "gpt2-xl"}
RUNNING = "bert-large"
PICTURES = {
    "overview": ("", "light", 1100, True),
    "overview-dark": ("", "dark", 1100, True),
    "overview-phone": ("", "light", 390, False),
    "study": ("study/my-study", "light", 1100, True),
    "study-dark": ("study/my-study", "dark", 1100, True),
    "study-phone": ("study/my-study", "light", 390, False),
    "study-running": (f"study/{RUNNING}", "light", 1100, True),
}
RENAME = """([from, to]) => {
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
    while (walk.nextNode()) walk.currentNode.data = walk.currentNode.data.replaceAll(from, to)
}"""


def file_of(name: str, model: str) -> dict[str, object]:
    """What the study file of `docs/start.md` says, of another model."""
    return {
        "name": name,
        "command": "deepspeed --num_gpus 8 train.py --deepspeed_config ds_config.json",
        "simulation": {"gpu": "A100-80GB", "model": model},
        "ds_config": {
            "train_micro_batch_size_per_gpu": 4,
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
            "zero_optimization": {"stage": [1, 2, 3]},
        },
    }


def finish(folder: Path, url: str, name: str, model: str, most_runs: int | None = None) -> None:
    """Works on a study until it is finished, or has had so many runs."""
    made, ended = dsopt.create_study({**file_of(name, model), "cwd": str(folder)}, storage=url), 0
    for event in made.work("cpu:1"):
        ended += isinstance(event, dsopt.events.TaskEnded)
        if ended == most_runs:
            break
    made.close()


def take(url: str, folder: Path) -> None:
    """Takes all pictures."""
    store = open_store(url)
    with DashboardServer(store, "127.0.0.1", 0) as server, sync_playwright() as driver:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for picture, (path, scheme, width, is_whole) in PICTURES.items():
            page = browser.new_page(
                color_scheme=scheme, viewport={"width": width, "height": 640 if width > 400 else 844}
            )
            page.goto(server.url + path)
            page.evaluate(RENAME, [str(folder), SHOWN_FOLDER])
            taken = Image.open(io.BytesIO(page.screenshot(full_page=is_whole)))
            taken.quantize(64).save(IMAGES / f"{picture}.png", optimize=True)
            page.close()
        browser.close()
        server.shutdown()
        thread.join()
    store.close()


def main() -> None:
    """Makes three studies, of which one goes on, and takes the pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = f"sqlite:///{folder}/.dsopt/dsopt.db"
        (folder / ".dsopt").mkdir()
        for study, model in STUDIES.items():
            finish(folder, url, study, model, 4 if study == RUNNING else None)
        worker = Worker(url, RUNNING)
        worker.begin()  # a run that goes on
        take(url, folder)
        worker.close()


if __name__ == "__main__":
    main()
