# `make demo` and `make test` set everything up by themselves; only Python >= 3.11 and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
PEERS := .venv-peers

# The real records, when they lie beside the checkout; tests that need them skip otherwise.
ifneq ($(wildcard ../shared/data),)
export OCCAMID_DATA ?= $(abspath ../shared/data)
endif

.PHONY: setup demo check test study bench peers lint format clean

setup: $(STAMP)

$(STAMP): pyproject.toml benchmarks/pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("occamid needs Python 3.11 or newer; set PYTHON=...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]' -e ./benchmarks
	touch $@

demo: $(STAMP)
	$(BIN)/occamid identify --example cascaded-tanks-twin --effort quick --out runs/demo --force

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Most tests compile many small programs and run each once.  Without optimisation, and with XLA's
# older emitters for fusions, the same programs are ready in a third of the time; and in three
# quarters of that where none is cut into parts for many cores, for both workers have work anyway.
OLDER := XLA_FLAGS="--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
QUICKLY := OMP_NUM_THREADS=1 JAX_DISABLE_MOST_OPTIMIZATIONS=1 $(OLDER)

# Two workers take whole files, in the order of tests/conftest.py: the longest first.
SHARED := -n 2 --dist loadfile --no-loadscope-reorder

# The inner loop: what needs no training of any length.
check: lint
	$(QUICKLY) $(BIN)/python -m pytest -q $(SHARED) -m "not slow and not long"

# What is slow runs its programs for long, and as users do.
test: lint
	$(QUICKLY) $(BIN)/python -m pytest -q $(SHARED) -m "not slow and not study"
	$(OLDER) $(BIN)/python -m pytest -q $(SHARED) -m "slow and not study"

# Published figures and whole identifications of the twins, about ten minutes more.
study: $(STAMP)
	$(BIN)/python -m pytest -q $(SHARED) -m study

# How fast networks train, and seconds of whole identifications on this machine, cold and warm;
# `make bench RECORDS="ph emps"` for others, `TORCH=python` names a Python with torch to compare with.
bench: $(STAMP)
	$(BIN)/occamid benchmark training $(if $(TORCH),--python $(TORCH))
	$(BIN)/occamid benchmark speed $(RECORDS)

# Other people's models on the records of the suite, one at a time, for hours; it goes on where it
# stopped.  Their libraries want old versions of ours (and Python before 3.13): an environment of
# their own.  `make peers RECORDS="ph robot-arm"` for some of the records.
peers: $(STAMP) $(PEERS)/.ready
	nice $(BIN)/occamid benchmark peers $(RECORDS) --python $(PEERS)/bin/python

$(PEERS)/.ready: benchmarks/peers-constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet -c benchmarks/peers-constraints.txt sysidentpy jax-sysid optax
	touch $@

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Not runs/, where people's own runs are.
clean:
	rm -rf $(VENV) $(PEERS) .pytest_cache .ruff_cache .mypy_cache .programs
