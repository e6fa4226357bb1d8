# Every target is one command of kafka-eos, or sets up what it needs. `make help` lists them.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
KAFKA_EOS := $(BIN)/kafka-eos
JARS := build/jars
LIBRARIES := build/libraries
TOURS := tests/checks/testing/libraries
VERDICTS := build/verdicts
GREEN := build/thorough
# Not `mutants`: its functions are rules with an error in them, and with another error they are mutants as before.
ROOMS := formats wire server clients histories audit watch conform testing traces walks graphs models tla matrix proofs lab ledger
MAVEN := mvn -q -B --no-transfer-progress
# Tests write tens of thousands of small files: into memory, where there are 4 GB for them, it takes less time.
IN_MEMORY := $(if $(TMPDIR),,$(shell df -Pk /dev/shm 2> /dev/null | awk 'NR == 2 && $$4 > 4000000 { print "TMPDIR=/dev/shm" }'))
# Two workers more than there are processors: some of them wait for a broker, a JVM or the clock.
PYTEST := $(IN_MEMORY) $(BIN)/pytest -q -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2) --dist loadfile --no-loadscope-reorder
# Python compiles each module once, not in each of hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

all: setup ## set up, then something of each floor: models, mutants, properties, graphs, proofs, recordings, report
	$(KAFKA_EOS) check

check: setup ## every check of the small models, by the repaired rules and by Kafka's own, mutants, properties, graphs, traces, proofs, contracts and recordings, and the report
	$(KAFKA_EOS) check all

setup: $(VENV)/.installed $(JARS)/tlc/.copied ## install the locked packages into .venv and fetch the TLA+ tools

test: setup $(JARS)/kafka/.copied ## set up, lint, and run the tests, except those that take long or repeat what `make` checks
	@$(MAKE) --no-print-directory -j 2 lint quick-tests

quick-tests: build/.tests-compiled
	$(PYTEST) -m "not thorough"

build/.tests-compiled: # in a new clone a first process compiles the tests, so that not each of the others does
	@$(BIN)/pytest -qq --collect-only > /dev/null || true
	@mkdir -p $(@D) && touch $@

# With -k a room that fails does not end the others.
thorough: setup $(JARS)/kafka/.copied $(JARS)/kafka-4.4/.copied $(JARS)/kafka-3.9/.copied ## the tests that `make test` leaves out, room by room: those not yet green on these sources (ROOM=tests/checks/lab: of that one)
	@$(MAKE) --no-print-directory -k $(patsubst %,$(GREEN)/%.green,$(ROOM:/=))

test-all: setup $(VENV)/.installed-bench $(VENV)/.installed-book $(JARS)/kafka/.copied $(JARS)/kafka-4.4/.copied $(JARS)/kafka-3.9/.copied $(JARS)/kafka-2.8/.copied $(JARS)/streams/.copied $(JARS)/kafka-tests/.copied libraries lint quick-tests thorough ## every test, with every peer and client library, and every graph of the full tier
	$(KAFKA_EOS) check graphs --tier full --json $(VERDICTS)/graphs-full.json

# mypy takes the time in which the tests beside it wait.
lint: $(VENV)/.installed ## ruff, mypy --strict, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	nice $(BIN)/mypy
	$(BIN)/lint-imports

model-check: setup ## check every model of the small and full tiers with TLC, by the repaired rules and by those of Kafka 4.4, 4.3 and 3.9
	$(KAFKA_EOS) check models --tier full --json $(VERDICTS)/models.json
	$(KAFKA_EOS) check models --tier full --kafka 4.4 --kafka 4.3 --kafka 3.9 --json $(VERDICTS)/releases.json
	$(KAFKA_EOS) ledger properties --models

model-check-deep: setup ## also check the deep tier: larger constants, more than an hour
	$(KAFKA_EOS) check models --tier deep --json $(VERDICTS)/model-check-deep.json

proofs: setup ## prove invariants of the reference without bounds, with z3; contracts, with CrossHair
	$(KAFKA_EOS) check proofs --json $(VERDICTS)/proofs.json
	$(KAFKA_EOS) check proofs --minimal --json $(VERDICTS)/proofs-minimal.json
	$(KAFKA_EOS) check proofs --kafka 4.3 --json $(VERDICTS)/proofs-4.3.json
	$(KAFKA_EOS) check proofs --kafka 3.9 --json $(VERDICTS)/proofs-3.9.json
	$(KAFKA_EOS) check contracts --json $(VERDICTS)/contracts.json
	$(KAFKA_EOS) check contracts --kafka 4.3 --json $(VERDICTS)/contracts-4.3.json
	$(KAFKA_EOS) check contracts --kafka 3.9 --json $(VERDICTS)/contracts-3.9.json
	$(KAFKA_EOS) ledger report

mutants: setup ## every mutant as a matrix, then every conjunct of every guard taken away
	$(KAFKA_EOS) check mutants --json $(VERDICTS)/matrix.json
	$(KAFKA_EOS) check conjuncts --first --json $(VERDICTS)/conjuncts.json
	$(KAFKA_EOS) ledger report

code-mutants: $(VENV)/.installed-mutants $(JARS)/kafka/.copied ## change the code around the machines, 300 places a package: its tests must notice (hours; goes on where it was ended)
	$(KAFKA_EOS) check code $(ROOMS) --json $(VERDICTS)/code.json

conformance: setup ## compare the reference's state graphs with TLC's, and validate traces
	$(KAFKA_EOS) check graphs --json $(VERDICTS)/graphs.json
	$(KAFKA_EOS) check graphs --kafka 4.3 --json $(VERDICTS)/graphs-4.3.json
	$(KAFKA_EOS) check graphs --kafka 3.9 --json $(VERDICTS)/graphs-3.9.json
	$(KAFKA_EOS) check graphs TransactionalProducerErrors --kafka 4.4 --json $(VERDICTS)/graphs-4.4.json
	$(KAFKA_EOS) check traces --json $(VERDICTS)/traces.json

findings: setup $(JARS)/kafka/.copied $(JARS)/kafka-4.4/.copied $(JARS)/kafka-3.9/.copied ## check the findings in Kafka: run their models, audit their recordings, send their requests to the broker
	$(KAFKA_EOS) ledger findings --check

sinks: setup ## effects outside of Kafka, on SQLite, killed at every step
	$(KAFKA_EOS) lab sinks --json $(VERDICTS)/sinks.json

replay: setup ## audit the kept recordings with local Spark
	$(KAFKA_EOS) check all --only recordings

report: setup ## write build/report.html and build/report.json from the verdicts of earlier commands
	$(KAFKA_EOS) ledger report

book: setup $(VENV)/.installed-book ## the executable spec as static pages: build/book/index.html
	$(KAFKA_EOS) book

record: setup $(JARS)/kafka/.copied $(JARS)/kafka-4.4/.copied $(JARS)/kafka-3.9/.copied ## record real Kafkas under faults, on loopback (a quarter of an hour)
	$(KAFKA_EOS) lab record one-broker three-brokers violations operator-mistakes replicated-violations transactions applications application-mistakes late-offsets no-leader --out build/recording --seed 1
	$(KAFKA_EOS) lab record violations replicated-violations no-leader late-offsets --kafka 4.4.0 --out build/recording --seed 1
	$(KAFKA_EOS) lab record transactions --kafka 3.9.1 --out build/recording --seed 1

peers: setup $(JARS)/kafka/.copied $(JARS)/kafka-4.4/.copied $(JARS)/kafka-3.9/.copied $(JARS)/kafka-2.8/.copied ## compare the reference, Kafka 4.4, 4.3, 3.9 and 2.8, kfake and librdkafka's mock with the spec; build/peers.html
	$(KAFKA_EOS) conform --peers --json build/peers.json

kafka-tests: setup $(JARS)/kafka/.copied $(JARS)/kafka-tests/.copied ## Kafka's own tests of transactions, groups, Produce, Fetch and offsets, on the server and on Kafka 4.3; build/kafka-tests.html (half an hour)
	$(KAFKA_EOS) check kafka-tests --json build/kafka-tests.json

broker-mutants: setup $(JARS)/kafka/.copied ## change the rules of Kafka 4.3's own broker, one at a time: conform must notice (a quarter of an hour; goes on where it was ended)
	$(KAFKA_EOS) check broker-mutants --json $(VERDICTS)/broker-mutants.json

costs: setup $(JARS)/kafka/.copied ## measure again what exactly-once costs, and keep the figures (a quarter of an hour)
	$(KAFKA_EOS) lab costs --measured checks/kafka_eos_checks/lab/costs/measured.json --json $(VERDICTS)/costs.json

bench: setup $(VENV)/.installed-bench $(JARS)/kafka/.copied ## measure codec, replay, graph comparison and server against their peers
	$(KAFKA_EOS) lab bench --json $(VERDICTS)/bench.json

soak: setup ## a million steps of every machine under faults, by the rules of Kafka 4.4, 4.3 and 3.9 too, then each mutant and known failure found
	$(KAFKA_EOS) check walks --seeds 0..18719 --jobs 2 --json $(VERDICTS)/soak.json
	$(KAFKA_EOS) check walks --kafka 4.4 --seeds 0..6399 --jobs 2 --json $(VERDICTS)/soak-4.4.json
	$(KAFKA_EOS) check walks --kafka 4.3 --seeds 0..6399 --jobs 2 --json $(VERDICTS)/soak-4.3.json
	$(KAFKA_EOS) check walks --kafka 3.9 --seeds 0..6399 --jobs 2 --json $(VERDICTS)/soak-3.9.json
	$(KAFKA_EOS) check walks --system --seeds 0..499 --jobs 2 --json $(VERDICTS)/soak-system.json
	$(KAFKA_EOS) check walks --mutant all --jobs 2 --json $(VERDICTS)/soak-mutants.json
	$(KAFKA_EOS) ledger report

fuzz: setup ## a million mutated record batches through the codec, random logs, clusters and histories through the audit, mutated frames to the server
	$(KAFKA_EOS) lab fuzz --count 1000000 --jobs 2
	$(KAFKA_EOS) lab fuzz --logs 20000
	$(KAFKA_EOS) lab fuzz --clusters 5000
	$(KAFKA_EOS) lab fuzz --histories 5000
	$(KAFKA_EOS) lab fuzz --frames 200000

schemas: setup $(JARS)/kafka/.copied $(JARS)/kafka-4.4/.copied ## write the server's message schemas and the clients' settings from the libraries again, and docs/served.md
	$(BIN)/python -m kafka_eos_checks.brokers.vendored_schemas
	$(BIN)/python -m kafka_eos_checks.testing.vendored_settings
	$(BIN)/python -m kafka_eos_checks.testing.coverage

lock: ## write the lock files again (needs pip-tools)
	pip-compile -q --generate-hashes --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	  --extra spark --extra hdfs --extra record --extra prove --extra dev -o requirements/main.lock pyproject.toml
	pip-compile -q --generate-hashes --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	  --extra bench -c requirements/main.lock -o requirements/bench.lock pyproject.toml
	pip-compile -q --generate-hashes --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	  --extra mutants -c requirements/main.lock -o requirements/mutants.lock pyproject.toml
	pip-compile -q --generate-hashes --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	  --extra book -c requirements/main.lock -o requirements/book.lock pyproject.toml

clean: ## remove the output of the targets, except .venv and the jars
	rm -rf $(VERDICTS) $(GREEN) build/models build/report.html build/report.json build/recording build/book build/book-source build/book-doctrees

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/.installed: requirements/main.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; set PYTHON="; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/main.lock
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed requirements/bench.lock
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/bench.lock
	@touch $@

$(VENV)/.installed-mutants: $(VENV)/.installed requirements/mutants.lock
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/mutants.lock
	@touch $@

$(VENV)/.installed-book: $(VENV)/.installed requirements/book.lock
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/book.lock
	@touch $@

libraries: $(LIBRARIES)/go/.built $(LIBRARIES)/node/.installed ## build the tours of the client libraries; without Go or Node their tests are skipped

$(LIBRARIES)/go/.built: $(wildcard $(TOURS)/go/go.* $(TOURS)/go/*/*.go)
	@mkdir -p $(@D)
	@command -v go > /dev/null || { echo "no Go: franz-go, Sarama and kafka-go are not tested"; exit 0; }; \
	  go build -C $(TOURS)/go -o $(abspath $(@D))/ ./franz ./kafkago ./sarama && touch $@

$(LIBRARIES)/node/.installed: $(wildcard $(TOURS)/node/package*.json)
	@mkdir -p $(@D)
	@command -v npm > /dev/null || { echo "no npm: KafkaJS is not tested"; exit 0; }; \
	  cp $^ $(@D) && npm ci --prefix $(@D) --silent --no-audit --no-fund --ignore-scripts && touch $@

$(JARS)/%/.copied: pom.xml
	$(MAVEN) -P $* dependency:copy-dependencies -DoutputDirectory=$(JARS)/$*
	@touch $@

# The rooms with tests that `make test` leaves out. Of tests, a room depends on its own and on what all of them share.
ROOM ?= $(sort $(shell grep -rl --include='*.py' 'pytest\.mark\.thorough' tests | cut -d / -f 1-3))
SHARED := tests/conftest.py tests/checks/conftest.py tests/java tests/vectors
LISTED := git ls-files --cached --others --exclude-standard
# Without git nobody lists them, and then the tests are run each time.
SOURCES = $(or $(wildcard $(shell { $(LISTED) . ':!tests'; $(LISTED) $(SHARED) $*; } 2> /dev/null)),always)

# What only these rooms need, and without which some of their tests are skipped.
$(GREEN)/tests/checks/book.green: | $(VENV)/.installed-book
$(GREEN)/tests/checks/conform.green: | $(JARS)/kafka-tests/.copied
$(GREEN)/tests/checks/testing.green: | $(VENV)/.installed-bench $(JARS)/streams/.copied libraries

.SECONDEXPANSION:
# The stamp is as old as the start of the tests, so that what was changed meanwhile is tested again.
# pytest ends with 5 if no test is marked.
$(GREEN)/%.green: $$(SOURCES) | %
	@mkdir -p $(@D) && touch $@.started
	$(PYTEST) -m thorough $* || [ $$? = 5 ]
	@mv $@.started $@

.PHONY: all always check setup test quick-tests thorough test-all lint proofs mutants code-mutants model-check model-check-deep conformance findings sinks replay report book record costs peers kafka-tests broker-mutants bench soak fuzz schemas libraries lock clean help
