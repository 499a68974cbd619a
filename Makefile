# Everything runs in .venv, which is made when it is not there.
PYTHON ?= python3
BIN := .venv/bin
PYTHONS := 3.10 3.13
# Tests start thousands of programs; images that are built for containers often let each compile what it imports anew.
export PYTHONDONTWRITEBYTECODE :=
.DEFAULT_GOAL := help
.PHONY: help install demo test test-slow test-chaos test-browser test-trackers test-cluster test-fast lint format docs bench bench-search bench-scale wheels-gpu clean

help: ## show this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

install: .venv/installed ## make .venv and install dsopt into it

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: install ## tune studies/tiny-gpt on this machine
	$(BIN)/dsopt study create studies/tiny-gpt/study.yaml
	$(BIN)/dsopt worker tiny-gpt

# Real runs go one after the other in one process; what mostly waits runs beside them in the others.
test: install ## what every change must pass: a quarter of an hour on two cores
	$(BIN)/python -m pytest -n 3 --dist loadgroup -m "not chaos and not slow and not cluster"

test-slow: install ## longer studies, and outages
	$(BIN)/python -m pytest -n 3 --dist loadgroup -m "slow and not cluster" $$(grep -rl --include='*.py' mark.slow tests)

test-chaos: install ## workers killed again and again, with real runs too; DSOPT_CHAOS_SEEDS=101-120 chooses seeds, whole
	$(BIN)/python -m pytest -n 3 --dist loadgroup -m chaos $$(grep -rl --include='*.py' mark.chaos tests)

NO_BROWSER := SKIPPED: no page was tested in a browser: chromium is not here, and apt-get could not install it (see above).
START := chromium --headless --no-sandbox --dump-dom about:blank
DEAD_BROWSER := FAILED: chromium is installed, and does not start. See what it says: $(START)
test-browser: install ## the pages in a real browser, where Debian's chromium is or can be installed
	command -v chromium > /dev/null || timeout 300 apt-get install -y -qq --no-install-recommends chromium > /dev/null || true
	@! command -v chromium > /dev/null || timeout 60 $(START) > /dev/null 2>&1 || { echo "$(DEAD_BROWSER)"; exit 1; }
	$(BIN)/python -m pip install --quiet -c constraints.txt playwright axe-playwright-python
	@if command -v chromium > /dev/null; then $(BIN)/python -m pytest -n 2 tests/web/test_browser.py; else echo "$(NO_BROWSER)"; fi

test-trackers: install ## exports to MLflow and Weights & Biases, which it installs in half a minute
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,mlflow,wandb]'
	$(BIN)/python -m pytest -n 2 tests/cli/test_trackers.py

CLUSTERS := openssh-server openssh-client pdsh slurm-wlm munge
test-cluster: install ## real clusters on this machine: Slurm, OpenSSH, Ray; needs root, and Debian's packages or apt-get
	dpkg -s $(CLUSTERS) > /dev/null 2>&1 || timeout 300 apt-get install -y -qq --no-install-recommends $(CLUSTERS) > /dev/null || true
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,ray]'
	$(BIN)/python -m pytest -n 3 --dist loadgroup -m cluster tests/cluster

test-fast: install ## the tests that take seconds
	$(BIN)/python -m pytest -m "not real and not gpu and not chaos and not cluster"

lint: install ## ruff, mypy for the oldest and the newest Python that is supported, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	echo $(PYTHONS) | xargs -n 1 -P 2 $(BIN)/mypy --python-version
	$(BIN)/lint-imports

format: install ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: install ## build the documentation site into docs/_build; a warning is an error
	$(BIN)/python -m sphinx -EaWq --keep-going docs docs/_build

bench: install ## measure what docs/benchmarks.md says
	$(BIN)/python -m benchmarks.coverage
	$(BIN)/python -m benchmarks.stakes
	$(BIN)/python -m benchmarks.gap
	$(BIN)/python -m benchmarks.choosing
	$(BIN)/python -m benchmarks.left
	$(BIN)/python -m benchmarks.overhead
	$(BIN)/python -m benchmarks.deepspeed_autotuner

bench-search: install ## put tuners side by side on simulated clusters, published runs and recorded grids (hours)
	$(BIN)/python -m benchmarks.search
	$(BIN)/python -m benchmarks.warm_start
	$(BIN)/python -m benchmarks.trees

bench-scale: install ## measure what many workers, many trials, takeovers and pages cost (a quarter of an hour)
	$(BIN)/python -m benchmarks.scale
	$(BIN)/python -m benchmarks.takeover 2
	$(BIN)/python -m benchmarks.pages
	$(BIN)/python -m benchmarks.notes

wheels-gpu: ## collect into .whl what a GPU machine with PyTorch lacks
	rm -rf .whl
	$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir .whl -c constraints.txt deepspeed .
	$(PYTHON) -m pip download --quiet --dest .whl -c constraints.txt --only-binary=:all: --python-version 3.12 --implementation cp \
		--platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 \
		--no-deps -r benchmarks/gpu-wheels.txt

clean: ## remove .venv and caches
	rm -rf .venv .whl build dist .*_cache
