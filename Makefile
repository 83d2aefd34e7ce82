# Short names for commands; `make help` lists them.
# Another Python: make setup PYTHON=python3.12

PYTHON = python3
RUN = .venv/bin/python

define NO_PYTHON
There is no $(PYTHON) here; install Python 3.11, 3.12 or 3.13, or name one: make setup PYTHON=/path
endef

define NO_INSTALL
pip could not install the packages; its own words stand above. Run make again: it goes on from here.
endef

define CHECK_PYTHON
import sys
version = "%d.%d" % sys.version_info[:2]
if version not in ("3.11", "3.12", "3.13"):
    sys.exit("This is Python %s; the course needs 3.11, 3.12 or 3.13. With another one "
             "installed, name it: make setup PYTHON=python3.12" % version)
try:
    import ensurepip
    import venv
except ImportError:
    sys.exit("This Python has no venv module. On Debian and Ubuntu it comes with: "
             "apt-get install python%s-venv" % version)
endef
export NO_PYTHON NO_INSTALL CHECK_PYTHON

.PHONY: help setup lab train test lint bench recipe figures runs release bundle nbval mistakes

help: ## list these names
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s%s\n", $$1, $$2}' Makefile

setup: .venv/installed ## make .venv and install everything into it

lab: setup ## prepare work/ and open JupyterLab there
	@$(RUN) -m tinylm lab

# Learners' bundles come without the reference lab; there it is their own that trains.
LAB = $(firstword $(wildcard autograde/reference/lab.py) work/lab.py)

train: setup ## train TinyLM by GRPO with the reference lab, into build/train
	@$(RUN) -m tinylm train --lab $(LAB) --out build/train

test: setup ## run all tests
	@$(RUN) -m pytest -q -rfEs tests

lint: setup ## look over code and notebooks with ruff
	@$(RUN) -m ruff check .

bench: setup ## time a GRPO step against a literal one and against TRL
	@$(RUN) -m bench.step

recipe: setup ## GRPO from the shipped checkpoint, five seeds
	@$(RUN) -m bench.recipe

figures: setup ## draw figures/ anew
	@$(RUN) -m tinylm.figures

runs: setup ## record the runs behind the sliders anew
	@$(RUN) -m tinylm.sweep --lab autograde/reference/lab.py --out build/runs.npz
	@cp build/runs.npz tinylm/data/runs.npz

release: setup ## make notebooks/ from autograde/source
	@$(RUN) -m autograde release

bundle: setup ## zip what learners get
	@$(RUN) -m autograde bundle

nbval: setup ## run the source notebooks and compare their outputs
	@$(RUN) -m autograde nbval

mistakes: setup ## which check catches which mistake
	@$(RUN) -m autograde mistakes

.venv/installed: pyproject.toml constraints.txt
	@command -v "$(PYTHON)" >/dev/null || { echo "$$NO_PYTHON" >&2; exit 1; }
	@"$(PYTHON)" -c "$$CHECK_PYTHON"
	@echo "Installing into .venv; some minutes. For torch without CUDA, far smaller: see README.md"
	@"$(PYTHON)" -m venv .venv
	@$(RUN) -m pip install -c constraints.txt -e ".[dev]" || { echo "$$NO_INSTALL" >&2; exit 1; }
	@touch $@
