# Everything here is also a plain command that you can read below. GNU make and a POSIX shell.

GO          ?= scripts/go
TOOL         = $(GO) tool -modfile=tools/go.mod
PREFIX      ?= /usr/local
DESTDIR     ?=
# Below share/zsh; Debian has vendor-completions for packages.
ZSH_FUNCTIONS ?= site-functions

export CGO_ENABLED = 0
# What --version says. Without a Git tree: make COMMIT=HASH.
COMMIT      ?= $(shell git describe --always --abbrev=12 --dirty=.dirty --exclude='*' 2>/dev/null)
# where the programs begin on x86-64, see internal/inherited/early
ENTRY = -E=github.com/grange-project/grange/internal/inherited/early.entry
GOBUILD = $(GO) build -trimpath -ldflags "-s -w $(ENTRY)$(if $(COMMIT), -X github.com/grange-project/grange/internal/version.commit=$(COMMIT))"

# Tests start virtual machines, which needs root. sudo keeps the path of go and its settings, and nothing else.
ROOT := $(if $(filter 0,$(shell id -u)),,sudo env "PATH=$$PATH" "GOENV=$$($(GO) env GOENV)" CGO_ENABLED=0 GOFLAGS=-buildvcs=false)
# env comes first where there is no sudo, so that variables can follow.
GOTEST = $(or $(ROOT),env) GRANGE_TEST_KERNEL="$$($(ROOT) scripts/test-kernel)" $(GO) run ./e2e/gotest

.DEFAULT_GOAL := help
.PHONY: help build quickstart down test test-slow test-batch test-elastic test-grid bench-batch chaos-batch demo-farm e2e-farm e2e-move e2e-crash e2e-upgrade quickstart-slurm down-slurm lint vulncheck sbom fuzz fmt-check bench-fleet bench-start bench-oci-start bench-streams chaos clean install install-grange install-grange-server packages test-packages test-images test-metal metal metal-down test-net test-gateways test-security test-metrics completion test-hwloc test-api test-nova-cases bench-numa bench-capacity bench-trial bench-sizes bench-place bench-images bench-files test-pages screenshots test-pools test-accounting test-login test-same test-reports nightly evidence test-claims

help: ## show this
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-16s %s\n' "$$name" "$$text"; done

build: ## build bin/grange, bin/grange-guest, and bin/grange-guest-386 for guests of 32 bits
	$(GOBUILD) -o bin/grange ./cmd/grange
	$(GOBUILD) -o bin/grange-guest ./cmd/grange-guest
	GOARCH=386 $(subst $(ENTRY),,$(GOBUILD)) -o bin/grange-guest-386 ./cmd/grange-guest

quickstart: ## install what is needed, start an agent, build the micro image, run a real job; FULL=1 repeats the long job
	@FULL=$(FULL) scripts/quickstart up

quickstart-slurm: ## the same with a private Slurm: an unmodified job of sbatch in a VM, with its record of CPU and memory
	@scripts/quickstart-slurm up

down-slurm: ## stop what quickstart-slurm started; images and records stay
	@scripts/quickstart-slurm down

down: ## stop what quickstart started, and nothing else; images stay
	@scripts/quickstart down

test: fmt-check ## install what the tests need and run them all, in real virtual machines
	@scripts/install-packages test
	$(GO) vet ./...
	$(GOTEST) -timeout 45m ./...

test-slow: ## boot a full Debian image built from packages, and test a host by grange selftest: some minutes
	@scripts/install-packages slow
	$(or $(ROOT),env) GRANGE_SLOW=1 $(GO) run ./e2e/gotest -timeout 60m -run 'TestDebianImage|TestOtherGuests|TestSelfTest' ./e2e/vm

test-batch: ## run jobs under every batch system that is packaged here, and print what held; ARGS="-systems slurm -cases exit"
	@scripts/install-packages batch
	$(ROOT) $(GO) run ./e2e/batch $(ARGS)

test-elastic: ## let virtual machines join a Slurm as nodes, kill them under jobs; ARGS="-only queue,crash"; JSON on the last line
	@scripts/install-packages batch
	$(ROOT) $(GO) run ./e2e/batch/elastic $(ARGS)

test-grid: ## send jobs through a grid's computing element into virtual machines, with a VOMS proxy and a token, and stand-ins for pilots with the network, autofs file systems, scratch and certificates of the guide; JSON on the last line
	@scripts/install-packages batch
	$(ROOT) $(GO) run ./e2e/batch/grid $(ARGS)

bench-batch: ## jobs on the host with and without the plug-in, the wrapper's own cost, the time to a job's first line; JSON on the last line
	@scripts/install-packages test
	$(ROOT) $(GO) run ./e2e/batch/benchbatch $(ARGS)

nightly: ## run the long suites in order, goes on where it was stopped, a JSON file of each in dist/nightly; ARGS="-only metal,images", -list, or "-slice N -left 20m" as .ci/run; JSON on the last line
	$(GO) run ./e2e/nightly $(ARGS)

evidence: ## keep newer records of make nightly in docs/internals/evidence, and write docs/internals/evidence.md from them and the rows
	$(GO) run ./e2e/nightly -evidence $(ARGS)

demo-farm: ## a server and three hosts in network namespaces here: VMs of two cells, ssh, a closed cell, a drained host; nothing stays. ARGS=-keep
	@scripts/install-packages test
	$(ROOT) $(GO) run ./e2e/farm $(ARGS)

e2e-move: ## a VM moves between two hosts in network namespaces here while it runs; agents, libvirtds and the server are killed meanwhile; JSON on the last line
	@scripts/install-packages test
	$(ROOT) $(GO) run ./e2e/move

e2e-farm: ## the same on SQLite with the server killed, and on PostgreSQL with two servers, one killed half-way
	@scripts/install-packages test
	$(ROOT) $(GO) run ./e2e/farm -kill
	$(ROOT) $(GO) run ./e2e/farm -postgres -servers 2 -kill

e2e-crash: ## kill servers, PostgreSQL and agents while VMs are made and deleted; ARGS="-vms 200"; JSON on the last line
	@scripts/install-packages test
	$(ROOT) $(GO) run ./e2e/farm/crash $(ARGS)

e2e-upgrade: ## take a farm under VMs and a job from the previous commit's release build to this tree's and back; ARGS="-from COMMIT"; JSON on the last line
	@scripts/install-packages test
	$(ROOT) $(GO) run ./e2e/upgrade $(ARGS)

chaos-batch: ## kill agent, slurmd and slurmctld under VM jobs; ARGS="-jobs 100"; JSON on the last line
	@scripts/install-packages test
	$(ROOT) $(GO) run ./e2e/batch/chaosbatch $(ARGS)

test-net: ## real frames between guests in network namespaces: all that may be forged, isolated and closed networks, 500 guests one after the other; ARGS="-cycles 50 -only forged"; JSON on the last line
	@scripts/install-packages test
	$(ROOT) $(GO) run ./e2e/net $(ARGS)

test-gateways: ## what a bound directory keeps and what no VM may do with it, in real VMs by each gateway, hostile ones too; ARGS="-gateways virtiofs -only locks"; JSON on the last line
	@scripts/install-packages test
	$(ROOT) $(GO) run ./e2e/gateways $(ARGS)

test-pools: ## sessions in VMs of pools: left and gone on with, limits, published ports, users apart; notebooks of JupyterHub in VMs; ARGS="-only shell,detach" or "-skip jupyterhub"; JSON on the last line
	@scripts/install-packages test
	@command -v npm >/dev/null || scripts/install-packages npm
	$(ROOT) $(GO) run ./e2e/pools $(ARGS)

test-same: ## start a program with generated arguments, environments, limits, signals and files on the host and in VMs, by exec, Slurm, Grid Engine and HTCondor, and compare what it sees; ARGS="-runs 200 -only exec,sbatch -seed 7"; JSON on the last line
	@scripts/install-packages batch
	$(ROOT) $(GO) run ./e2e/same $(ARGS)

test-security: ## attack agents and servers as their other users would; ARGS="-only C1,H2" or "-from COMMIT"; JSON on the last line
	@scripts/install-packages test
	$(ROOT) $(GO) run ./e2e/security $(ARGS)

test-metrics: ## check the alert rules with promtool, put faults into a host, each of which raises its alarm and no other, and measure a scrape of a server with 10,000 hosts; ARGS="-only GrangeDown"; JSON on the last line
	@scripts/install-packages test
	@scripts/install-packages metrics
	promtool check rules packaging/prometheus/grange.rules.yml
	promtool test rules e2e/metrics/rules.test.yml
	$(GOBUILD) -o bin/grange ./cmd/grange
	$(ROOT) $(GO) run ./e2e/metrics -grange bin/grange $(ARGS)

test-accounting: ## 500 jobs and cloud VMs, and a Slurm with slurmdbd beside, under kills of everything: records lost, doubled, their CPU time; JSON on the last line
	@scripts/install-packages test
	@scripts/install-packages slurm
	$(ROOT) $(GO) run ./e2e/accounting $(ARGS)

test-login: ## sign people and programs in by a real issuer, and those who are nobody: claims, tokens, replays, floods; ARGS="-only tokens"; JSON on the last line
	@scripts/install-packages test
	@command -v npm >/dev/null || scripts/install-packages npm
	$(GOBUILD) -o bin/grange ./cmd/grange
	$(GO) run ./e2e/login $(ARGS)

lint: fmt-check ## gofmt, go vet, staticcheck, functions that nothing calls, parameters that nothing uses, committed programs and large files
	$(GO) test -count=1 -run TestNoBinaries ./internal/archtest
	$(GO) vet ./...
	$(TOOL) staticcheck ./...
	@echo $(TOOL) deadcode -test ./...; dead="$$($(TOOL) deadcode -test ./...)" && [ -z "$$dead" ] || { echo "$$dead"; exit 1; }
	$(TOOL) unparam -tests=false ./...

vulncheck: ## known vulnerabilities in what the programs call; says so where the database cannot be reached
	@GO="$(GO)" scripts/vulncheck

sbom: build ## list what bin/grange and bin/grange-guest consist of, as SPDX and CycloneDX in dist/; the same build gives the same files
	@mkdir -p dist
	@for program in grange grange-guest; do \
		PATH="$$($(GO) env GOROOT)/bin:$$PATH" $(TOOL) cyclonedx-gomod bin -json -noserial -notimestamp -std -output dist/$$program.cdx.json bin/$$program || exit 1; \
	done
	@SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null)} \
		$(GO) run ./e2e/sbom -version "$$(bin/grange --version | cut -d' ' -f2-)" bin dist grange grange-guest

fuzz: ## run every fuzz target for FUZZTIME (10s) each; ARGS="-only policy" or ARGS=-keep, which adds inputs to testdata/fuzz; JSON on the last line
	$(GO) run ./e2e/fuzz -time $(or $(FUZZTIME),10s) $(ARGS)

fmt-check:
	@files=$$("$$($(GO) env GOROOT)/bin/gofmt" -l api cmd e2e internal); test -z "$$files" || { echo "gofmt these:" $$files >&2; exit 1; }

test-api: ## ask a server, with simulated hosts, whatever its OpenAPI allows and what it does not (schemathesis): no server errors; JSON on the last line
	@scripts/install-packages test
	$(GOBUILD) -o bin/grange ./cmd/grange
	$(GO) run ./e2e/api -grange bin/grange $(ARGS)

test-pages: ## look at the web pages of a server with 10,000 hosts in Chromium: axe, policy, speed; ARGS="-hosts 1000 -only VM"; JSON on the last line
	@scripts/install-packages pages
	@command -v npm >/dev/null || scripts/install-packages npm
	$(GOBUILD) -o bin/grange ./cmd/grange
	$(GO) run ./e2e/pages -grange bin/grange $(ARGS)

screenshots: ## draw every web page, dark and light, for desks and phones, into dist/screenshots
	@scripts/install-packages pages
	$(GOBUILD) -o bin/grange ./cmd/grange
	$(GO) run ./e2e/pages -grange bin/grange -hosts 2000 -screens dist/screenshots $(ARGS)

test-hwloc: ## have grange host show read recorded machines, and compare with what hwloc reads there; TREES=dir for others
	$(GOBUILD) -o bin/grange ./cmd/grange
	$(GO) run ./e2e/hwloc -grange bin/grange $(if $(TREES),-trees $(TREES))

test-nova-cases: ## answer recorded placement cases with grange host fit, and judge the answers; CASES=file for others
	$(GOBUILD) -o bin/grange ./cmd/grange
	$(GO) run ./e2e/novacases -grange bin/grange $(if $(CASES),-cases $(CASES))

test-reports: ## audit, verify and plan hosts that were made after public problem reports, and random ones; ARGS="-only a13"; JSON on the last line
	$(GOBUILD) -o bin/grange ./cmd/grange
	$(GO) run ./e2e/reports -grange bin/grange $(ARGS)

test-claims: ## compare what README and docs state with the program: commands, flags, names, keys, defaults, numbers, examples; JSON on the last line
	$(GO) run ./e2e/claims $(ARGS)

bench-numa: ## the planner's speed on one core, and how it packs recorded traces; JSON on the last line
	$(GO) run ./e2e/benchnuma $(ARGS)

bench-fleet: ## a server with 10,000 hosts on it that are not there: memory, CPU, how fast all connect, hear and come back; ARGS= for it; JSON on the last line
	$(GO) run ./e2e/benchfleet $(ARGS)

bench-capacity: ## a month of 500,000 jobs replayed on 2,000 hosts: jobs a second, and whether all CPU hours are somewhere; JSON on the last line
	$(GO) run ./e2e/benchcapacity $(ARGS)

bench-trial: ## try changes with known effects and with none on an emulated host, and kill trials; JSON on the last line
	@scripts/install-packages hosts
	$(ROOT) $(GO) run ./e2e/benchtrial $(ARGS)

bench-sizes: ## fill an emulated host with VMs of three sizes, and measure guests without nested page tables; ARGS="-output DIR"; JSON on the last line
	@scripts/install-packages hosts
	$(ROOT) $(GO) run ./e2e/benchsizes $(ARGS)

bench-place: ## VMs a second that get their host among 100, 1,000 and 10,000, with durable commits, on one core; JSON on the last line
	$(GO) run ./e2e/benchplace $(ARGS)

bench-start: ## compare starts of grange exec with raw QEMU, in pairs; ARGS=-metal on an emulated host with KVM; JSON on the last line
	@scripts/install-packages test
	@case "$(ARGS)" in *-metal*) scripts/install-packages hosts ;; esac
	$(ROOT) $(GO) run ./e2e/benchstart $(ARGS)

bench-files: ## directories of an emulated host in VMs by each gateway, beside virtiofs and 9p by root: large and small files, CPU; ARGS=-metal=false; JSON on the last line
	@scripts/install-packages test
	@case "$(ARGS)" in *-metal=false*) ;; *) scripts/install-packages hosts ;; esac
	$(ROOT) $(GO) run ./e2e/benchfiles $(ARGS)

bench-images: ## 20 simulated hosts and 2 real agents fetch an image of 2 GiB, its next versions, and 400 in simulation; starts from container images; ARGS="-images DIR"; JSON on the last line
	@scripts/install-packages images
	$(ROOT) $(GO) run ./e2e/benchimages $(ARGS)

bench-oci-start: ## compare cached starts of a container image, a SIF file and a directory with the micro image's; JSON on the last line
	@scripts/install-packages images
	$(ROOT) $(GO) run ./e2e/benchoci $(ARGS)

chaos: ## kill agent, libvirtd and callers under running jobs, let libvirt, disk and clock fail; ARGS="-kills 300"; JSON on the last line
	@scripts/install-packages test
	$(ROOT) $(GO) run ./e2e/chaos $(ARGS)

streams: ## copy a megabyte through each of many jobs, several at a time; ARGS= for it; JSON on the last line
	@scripts/install-packages test
	$(ROOT) $(GO) run ./e2e/streams $(ARGS)

clean: ## stop what quickstart started, remove its images and state, bin/ and dist/
	@test ! -e "$${STATE:-/var/lib/grange}/slurm" || scripts/quickstart-slurm clean
	@scripts/quickstart clean
	rm -rf bin dist

# What lies where: `make packages` fills each package by the target of its name.
install: install-grange install-grange-server ## install programs, manual, completions, units and example configuration; PREFIX=/usr/local, DESTDIR=

install-units = for unit in $(1); do \
	sed 's|@PREFIX@|$(PREFIX)|g' packaging/systemd/$$unit >$(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit || exit 1; done

install-grange: build
	install -D -m 0755 -t $(DESTDIR)$(PREFIX)/bin bin/grange bin/grange-guest bin/grange-guest-386
	install -D -m 0755 scripts/private-libvirtd $(DESTDIR)$(PREFIX)/sbin/grange-private-libvirtd
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)$(PREFIX)/share/man/man1
	$(call install-units,grange-agent.service grange-tune-audit.service grange-tune-audit.timer grange-worker-watch.service)
	install -D -m 0644 packaging/agent.toml $(DESTDIR)$(PREFIX)/share/doc/grange/agent.toml
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/grange/prometheus packaging/prometheus/*.yml
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/grange/grafana packaging/grafana/*.json
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/grange/jupyterhub packaging/jupyterhub/pyproject.toml
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/grange/jupyterhub/grange_jupyterhub packaging/jupyterhub/grange_jupyterhub/*.py
	@test -e $(DESTDIR)/etc/grange/agent.toml || install -D -m 0644 packaging/agent.toml $(DESTDIR)/etc/grange/agent.toml
	env -u GRANGE_SOCKET -u GRANGE_SERVER -u GRANGE_PROJECT bin/grange man --dir $(DESTDIR)$(PREFIX)/share/man/man1
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/man/man8 packaging/man/*.8
	bin/grange completion bash | install -D -m 0644 /dev/stdin $(DESTDIR)$(PREFIX)/share/bash-completion/completions/grange
	bin/grange completion zsh | install -D -m 0644 /dev/stdin $(DESTDIR)$(PREFIX)/share/zsh/$(ZSH_FUNCTIONS)/_grange
	bin/grange completion fish | install -D -m 0644 /dev/stdin $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/grange.fish

install-grange-server:
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	$(call install-units,grange-server.service grange-server-backup.service grange-server-backup.timer)
	install -D -m 0644 packaging/systemd/grange-sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/grange.conf
	install -D -m 0644 packaging/server.toml $(DESTDIR)$(PREFIX)/share/doc/grange-server/server.toml

packages: build sbom ## build deb, rpm and the static tarball of the audit into dist/, with SHA256SUMS; a commit gives the same bytes each time
	@GO="$(GO)" scripts/packages dist

test-packages: packages ## install, upgrade, remove and purge the packages in Debian 12 and 13 roots, rpm in an empty one; JSON on the last line
	@scripts/install-packages packages
	$(ROOT) $(GO) run ./e2e/packages $(ARGS)

test-images: ## add images from real web servers and registries to a real agent: every source, hostile ones, kills at each step, many cycles; ARGS="-cycles 500 -only containers"; JSON on the last line
	@scripts/install-packages images
	$(ROOT) $(GO) run ./e2e/images $(ARGS)

test-metal: ## run the packages on whole emulated hosts with KVM, two nodes, systemd, AppArmor and a boot loader; ARGS=-quick or "-run TUNER"; JSON on the last line
	@scripts/install-packages hosts
	$(ROOT) $(GO) run ./e2e/metal test $(ARGS)

metal: ## bring such a host up to work on, with the packages installed; ARGS="-hosts 2 -suite trixie"
	@scripts/install-packages hosts
	$(ROOT) $(GO) run ./e2e/metal up $(ARGS)

metal-down: ## end the hosts of make metal
	$(ROOT) $(GO) run ./e2e/metal down

completion: build ## write completions for bash, zsh and fish below bin/completion
	@mkdir -p bin/completion
	@for shell in bash zsh fish; do bin/grange completion $$shell >bin/completion/grange.$$shell; done
	@echo 'now: source bin/completion/grange.bash, or .zsh, or .fish'
