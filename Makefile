# Every target does its own set-up and may be run again at once. 'make help' lists them.
.PHONY: help setup demo test test-vm test-times test-quick bench bench-record bench-ranking sample notebooks docs wheel deb arm64 release format clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: ## packages, Rust, .venv/bin/spoolscope and the native programs
	@.ci/setup run

demo: ## replay the shipped trace on ext4, xfs and btrfs, and write demo/report.html (sudo)
	@.ci/setup run
	@.ci/demo

test: ## every gate and test but those of the next two (sudo: also on real filesystems and BPF)
	@.ci/setup test
	@.ci/test

test-vm: ## the tests that boot other kernels, which an emulator does slowly (sudo)
	@.ci/setup test
	@.ci/test vm

test-times: ## the tests that judge times, alone on a quiet machine (sudo)
	@.ci/setup test
	@.ci/test times

test-quick: ## two minutes of tests that need no root
	@.ci/setup test
	@.ci/test quick

bench: ## cost of recording, speed of replaying, explaining and reporting (sudo)
	@.ci/setup bench
	@.ci/bench

bench-record: ## of these, the cost of recording, beside strace, perf and bpftrace (sudo; 10 min)
	@.ci/setup bench
	@.ci/bench tracers

bench-ranking: ## a real mail server on 8 filesystems against replays: analysis/RANKING.md (sudo; hours)
	@.ci/setup bench
	@.venv/bin/python analysis/benchmarks/ranking $(RANKING)

sample: ## make the sample trace again from a real Postfix and Dovecot (sudo)
	@.ci/setup sample
	@traces/samples/make-sample.sh

notebooks: ## run them and write notebooks/rendered (sudo; SPOOLSCOPE_SCALE, _ROUNDS, _VM)
	@.ci/setup test
	@.venv/bin/python -m pip install -q --disable-pip-version-check -e '.[notebooks]'
	@.venv/bin/python .ci/render_notebooks.py

docs: ## build/site: the documentation as a site, with commands, causes and tables from the sources
	@.ci/setup pack
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

wheel: ## dist/: a wheel for any platform, and one with the native programs for this architecture
	@.ci/setup pack
	@.ci/wheel

deb: ## dist/: a package with services for always-on recording, for this release (RELEASES=all: Debian 12, 13, Ubuntu 24.04)
	@.ci/setup pack
	@.ci/deb $(RELEASES)

arm64: ## dist/: the same for arm64, cross-compiled in a Debian 12 below build/ (sudo; 2 GB)
	@.ci/setup pack
	@.ci/arm64

release: ## dist/: wheels, sdist, packages, checksums, a list of all parts; and a tag
	@.ci/setup pack
	@.venv/bin/python -m pip install -q --disable-pip-version-check -e '.[release]'
	@.ci/release

format: ## rewrite sources to the house style
	@.ci/setup test
	@.ci/format

clean: ## remove what was built
	rm -rf build target .venv demo dist
