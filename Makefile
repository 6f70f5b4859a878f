# Two commands: `make demo` runs the main job, `make test` passes every test. Both do their own set-up into .venv.
# Needed beforehand: Rust (rustup or a distribution's), Python 3.11 or newer, a C compiler.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := examples/llama3-70b-512xH100.yaml

# What the engine is built from, and what says which packages are installed.
SOURCES := $(shell find crates data -type f 2>/dev/null | grep -v '/target/') Cargo.toml Cargo.lock
ENGINE := $(VENV)/engine.stamp
TOOLS := $(VENV)/tools.stamp
DOCS := $(VENV)/docs.stamp
RAY := $(VENV)/ray.stamp

.PHONY: demo test quick wheel checked fuzz fuzz-import mutants bench loom lint rustdoc format docs setup ray library tracer tracer-bench clean

demo: $(ENGINE)
	$(BIN)/windtunnel run $(DEMO)

setup: $(ENGINE) $(TOOLS)

# For `--engine ray`, and for the tests of it, which are skipped without (docs/scale-out.md).
ray: $(ENGINE) $(TOOLS) $(RAY)

test: $(ENGINE) $(TOOLS)
	cargo test --workspace --exclude windtunnel-python --quiet
	$(BIN)/python -m pytest -n auto -q

# For between two edits: all unit tests of the engine and a few runs from end to end, under a minute once all is built.
QUICK := tests/test_closed_forms.py tests/test_messages.py tests/test_tables.py tests/test_units.py tests/test_layout.py \
	tests/test_end_to_end.py::test_a_run_folder_is_complete tests/test_end_to_end.py::test_overrides_and_comparison
quick: $(ENGINE) $(TOOLS)
	cargo test --workspace --exclude windtunnel-python --lib --quiet
	$(BIN)/python -m pytest -n auto -q $(QUICK)

# As it is released, but with overflow checks: the tests of those crates in which arithmetic lives. `make test` checks overflows
# too, in an engine that is optimised less.
checked:
	cargo test --profile checked --quiet -p windtunnel-kernel -p windtunnel-tables -p windtunnel-topology \
		-p windtunnel-workload -p windtunnel-fabric -p windtunnel-import -p windtunnel-cluster --lib --test all

# 2,000 random scenarios at all fidelities against the rules of tests/fuzz/properties.py: under ten minutes on two cores.
# `make fuzz FUZZ='--first 17 --count 1'` repeats one.
FUZZ ?= --count 2000
fuzz: $(ENGINE) $(TOOLS)
	PYTHONPATH=tests $(BIN)/python -m fuzz $(FUZZ)

# Recordings damaged at random, for each reader for as many seconds: readers refuse them and never panic.
FUZZ_SECONDS ?= 20
FUZZ_THREADS ?= 1
fuzz-import:
	WINDTUNNEL_FUZZ_SECONDS=$(FUZZ_SECONDS) cargo test --profile checked -p windtunnel-import --test all fuzz:: -- \
		--nocapture --test-threads $(FUZZ_THREADS)

# Important lines changed one at a time, each in a copy: does the test that is named beside it notice? Takes an hour.
mutants:
	PYTHONPATH=tests $(PYTHON) -m mutants $(MUTANTS)

# The barrier and mailboxes of the parallel engine under a model checker, in every interleaving: a few seconds.
loom:
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p windtunnel-kernel --release --test loom_barrier

lint: $(ENGINE) $(TOOLS)
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	$(BIN)/ruff format --check python tests benches experiments
	$(BIN)/ruff check python tests benches experiments
	$(BIN)/mypy

# The documentation of the crates, for those who change them: no link may lead nowhere.
rustdoc:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --quiet

# A wheel with its examples, experiments and data sheets, for machines without a checkout: dist/*.whl. It is then installed
# into a fresh environment and asked for an example there.
WHEEL_PROFILE ?= release
wheel: $(VENV)/venv.stamp
	rm -rf python/windtunnel/shipped dist
	mkdir -p python/windtunnel/shipped
	cp -r examples experiments data python/windtunnel/shipped/
	find python/windtunnel/shipped -name __pycache__ -prune -exec rm -r {} +
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin build --profile $(WHEEL_PROFILE) --out dist; \
		status=$$?; rm -rf python/windtunnel/shipped; exit $$status
	$(PYTHON) benches/try_wheel.py dist/*.whl

# For simulators in C and C++: target/release/libwindtunnel_routing.{so,a}; the header is crates/routing/include.
library:
	cargo build --release --package windtunnel-routing

# The tracer of MPI programs and its examples, for the MPI library of MPICC: target/tracers/libwindtunnel-mpi.so (docs/traces.md).
MPICC ?= mpicc
tracer:
	$(MAKE) -C tracers/mpi MPICC=$(MPICC) OUT=$(CURDIR)/target/tracers

# What the tracer adds to a call, in ns: the same program with it and without.
tracer-bench: tracer
	mpirun -n 1 target/tracers/overhead
	WINDTUNNEL_MPI_DIR=target/tracers LD_PRELOAD=target/tracers/libwindtunnel-mpi.so mpirun -n 1 target/tracers/overhead

format: $(TOOLS)
	cargo fmt --all
	$(BIN)/ruff format python tests benches experiments
	$(BIN)/ruff check --fix python tests benches experiments

bench: $(ENGINE) $(TOOLS)
	cargo bench --workspace --exclude windtunnel-python
	$(BIN)/python benches/python_side.py
	$(BIN)/python benches/table.py
	$(BIN)/python benches/studies.py
	$(BIN)/python benches/import_traces.py

# docs/scenario.md comes from the schema; the site is optional, the pages read as they are.
docs: $(ENGINE) $(DOCS)
	$(BIN)/python -m windtunnel.cli.schema_docs docs/scenario.md
	$(BIN)/mkdocs build --strict --quiet --site-dir site

# The packages of an extra alone: asking maturin for them would build the engine a second time.
define install_extra
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["$(1)"], sep="\n")' > $(VENV)/$(1).txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement $(VENV)/$(1).txt
endef

# Only the first run downloads: a stamp is newer than what it was made from.
$(VENV)/venv.stamp:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'maturin>=1.16,<2'
	@touch $@

$(ENGINE): $(VENV)/venv.stamp pyproject.toml $(SOURCES)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --release --quiet
	@touch $@

$(TOOLS): $(VENV)/venv.stamp pyproject.toml
	$(call install_extra,dev)
	@touch $@

$(DOCS): $(VENV)/venv.stamp pyproject.toml
	$(call install_extra,docs)
	@touch $@

$(RAY): $(VENV)/venv.stamp pyproject.toml
	$(call install_extra,ray)
	@touch $@

clean:
	rm -rf $(VENV) target site runs
