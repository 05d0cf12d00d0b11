# Front door. `make` builds, `make demo` and `make test` do everything, set-up included.
BUILD   ?= build
JOBS    ?= $(shell nproc)
PREFIX  ?= /usr/local
DESTDIR ?=

# Without the variables of this make, the one that CMake starts would be a sub-make and announce
# every directory that it enters.
CMAKE_BUILD = env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL cmake --build $(BUILD) -j $(JOBS)

.PHONY: all setup configure demo test bench install format lint fuzz check clean
all: configure
	@$(CMAKE_BUILD)

setup:
	@tools/setup.sh

configure: setup
	@cmake -S . -B $(BUILD) $(CMAKE_ARGS) > /dev/null

# Builds the program only: the tests take longer to build than everything else.
demo: configure
	@$(CMAKE_BUILD) --target ssmscope_program
	@tools/demo.sh $(BUILD)

test: all
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS)

bench: all
	@$(BUILD)/ssmscope bench

install: all
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix "$(PREFIX)"

# ---- for developers: tools/setup.sh --dev installs what these need ------------------------------
format:
	@git ls-files '*.c' '*.h' | xargs clang-format-14 -i

lint:
	@tools/lint.sh $(BUILD)

fuzz:
	@tools/fuzz.sh

# Everything that has to hold before a change lands; about 20 minutes on two cores.
check:
	@.ci/run

clean:
	@rm -rf $(BUILD)
