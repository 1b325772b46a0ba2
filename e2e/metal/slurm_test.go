package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/grange-project/grange/e2e/metal/metallab"
)

//go:embed slurm_setup.sh
var slurmSetup string

// slurmCases are those in which control groups, systemd or a release's own ways decide. The others are the same on
// every host, and `make test-batch` runs them. Of the second release it is those that the kernel decides.
var slurmCases = map[string][]string{
	"bookworm": {"suspend and resume", "accounting", "out of memory", "tasks", "TERM trap", "KILL", "mixed", "own VM",
		"exit 3", "death by KILL", "time limit", "requeue", "fail closed: missing wrapper", "fail closed: agent down",
		"fail closed: missing plug-in", "afterwards"},
	"trixie": {"suspend and resume", "out of memory", "KILL", "fail closed: agent down", "afterwards"},
}

// startSlurm returns a host whose Slurm is of packages and runs under systemd.
func startSlurm(t *testing.T, suite string) *metallab.Host {
	t.Helper()
	h := start(t, metallab.Options{Suite: suite})
	plugin, err := filepath.Glob(filepath.Join(dist, "grange-slurm_*.deb"))
	if err != nil || len(plugin) != 1 {
		t.Fatalf("packages of the plug-in: %v, %v", plugin, err)
	}
	if err := h.Copy(t.Context(), "/root", plugin...); err != nil {
		t.Fatal(err)
	}
	run(t, h, "DEBIAN_FRONTEND=noninteractive apt-get -q -y install /root/grange-slurm_*.deb\n"+slurmSetup)
	return h
}

// Slurm of each Debian is a test of its own, as what is repeated where the emulator cut a host.
func TestSlurmBookworm(t *testing.T) { slurmSuite(t, "bookworm") }
func TestSlurmTrixie(t *testing.T)   { slurmSuite(t, "trixie") }

// slurmSuite runs the cases of `make test-batch` on the Slurm of Debian, on cgroup v2 and under systemd, with the
// packages as they are installed.
func slurmSuite(t *testing.T, suite string) {
	long(t)
	t.Parallel()
	h := startSlurm(t, suite)
	t.Run("configuration", func(t *testing.T) { slurmInstalled(t, h) })
	t.Run("charges", func(t *testing.T) { slurmCharges(t, h) })
	t.Run("huge pages", func(t *testing.T) { slurmHugePages(t, h) })
	t.Run("cases", func(t *testing.T) { slurmConforms(t, h, slurmCases[suite]) })
	t.Run("power loss", func(t *testing.T) { slurmPowerLoss(t, h) })
	if got := run(t, h, "journalctl -q --no-pager -p err -u grange-agent | grep -v 'Killed\\|Main process "+
		"exited\\|libvirt does not answer' || true"); got != "" {
		t.Errorf("errors in the agent's journal:\n%s", got)
	}
}

// slurmInstalled: what install has written check finds good, and a second install changes nothing.
func slurmInstalled(t *testing.T, h *metallab.Host) {
	if got := run(t, h,
		"grange slurm install --write --default micro --allow-metal; cat /etc/slurm/slurm.conf"); strings.Contains(got,
		"is set: add") {
		t.Errorf("install wants what slurm.conf has:\n%s", got)
	}
	for _, f := range query[[]struct{ ID, Level, Found string }](t, h, "grange slurm check --json || true") {
		// Where jobs may run on the host itself, a profile that is run there is no way around anything.
		if f.Level != "ok" && f.Level != "advice" && f.ID != "user-env" {
			t.Errorf("check: %s, %s: %s", f.Level, f.ID, f.Found)
		}
	}
}

// slurmCharges: all that QEMU has is charged to the job, from its first page on.
func slurmCharges(t *testing.T, h *metallab.Host) {
	charged := slurmJob(t, h)
	has, group := charged(`awk '/^RssAnon/ { print $2 * 1024 }' /proc/$qemu/status`), charged(
		`awk '$1 == "anon" { print $2 }' $group/memory.stat`)
	const slack = 4 << 20 // the kernel counts in batches
	if group+slack < has {
		t.Errorf("QEMU has %d bytes, its job's group %d of them", has, group)
	}
	if limit, most := charged("cat ${group%/step_*}/memory.max"), slurmMemory; limit != most {
		t.Errorf("the job's limit is %d, not %d", limit, most)
	}
	slurmJobEnds(t, h)
}

// slurmMemory is what slurm_setup.sh gives a job of one CPU.
const slurmMemory = 700 << 20

// slurmHome makes the directory of jobs, which the conformance cases remove with what they leave there, and a job that
// runs until told to stop.
const slurmHome = `set -e
mkdir -p /srv/slurmlab/home; chown nobody: /srv/slurmlab/home; cd /srv/slurmlab/home
printf '#!/bin/sh\necho up\nwhile [ ! -e /srv/slurmlab/home/stop ]; do sleep 1; done\n' >j.sh; chmod 755 j.sh
`

// slurmJob starts a job that runs until slurmJobEnds, and returns a function that runs a script which prints a number,
// with $qemu and $group, its control group below the job's.
func slurmJob(t *testing.T, h *metallab.Host) func(script string) int {
	t.Helper()
	run(t, h, slurmHome+`rm -f j.out stop
runuser -u nobody -- sbatch --parsable --chdir=/srv/slurmlab/home -o j.out ./j.sh >/root/job`)
	await(t, h, "the job is up", "grep -q up /srv/slurmlab/home/j.out")
	return func(script string) int {
		t.Helper()
		return number(t, h, `qemu=$(pgrep -f '^/usr/bin/qemu-system'); group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$qemu/cgroup)
case $group in */job_$(cat /root/job)/*) ;; *) echo "QEMU is in $group" >&2; exit 1;; esac
`+script)
	}
}

func slurmJobEnds(t *testing.T, h *metallab.Host) {
	t.Helper()
	run(t, h, "touch /srv/slurmlab/home/stop")
	await(t, h, "the job has ended", "! squeue -h | grep -q .")
	run(t, h, "rm /srv/slurmlab/home/stop")
}

// slurmHugePages: a job's VM takes huge pages where there are some. Kernels that can, charge them to the job, whose
// limit then holds them; of the others the audit says nothing, as nothing can be done.
func slurmHugePages(t *testing.T, h *metallab.Host) {
	counts := run(t, h, `audit() { grange tune audit --role compute --rule hugetlb-unaccounted --json | grep -q '"rule": "hugetlb-unaccounted"'; }
for n in /sys/devices/system/node/node?; do echo 600 >$n/hugepages/hugepages-2048kB/nr_hugepages; done
if audit; then echo said; fi
if mount -o remount,memory_hugetlb_accounting /sys/fs/cgroup 2>/dev/null; then echo counts; fi
if audit; then echo said again; fi`)
	charged := slurmJob(t, h)
	pages := charged(`awk '/_Hugetlb:/ { n += $2 } END { print n * 1024 }' /proc/$qemu/smaps_rollup`)
	if least := slurmMemory / 2; pages < least {
		t.Errorf("the job's VM has %d bytes in huge pages", pages)
	}
	group, limit := charged("cat ${group%/step_*}/memory.current"), charged("cat ${group%/step_*}/memory.max")
	t.Logf("%d in huge pages, the job's group has %d of %d; %q", pages, group, limit, counts)
	switch counts {
	case "said\ncounts":
		if group < pages || group > limit {
			t.Errorf("the job's group has %d of %d; its VM has %d in huge pages alone", group, limit, pages)
		}
	case "": // before Linux 6.6
		if group > pages {
			t.Errorf("this kernel counts no huge pages, and the job's group has %d, with %d in huge pages",
				group, pages)
		}
	default:
		t.Errorf("audit and kernel: %q", counts)
	}
	slurmJobEnds(t, h)
	run(t, h, "for n in /sys/devices/system/node/node?; do echo 0 >$n/hugepages/hugepages-2048kB/nr_hugepages; done; sleep 12")
}

func number(t *testing.T, h *metallab.Host, script string) int {
	t.Helper()
	out := run(t, h, script)
	n, err := strconv.Atoi(out)
	if err != nil {
		t.Fatalf("%s: %q", script, out)
	}
	return n
}

// slurmConforms runs the program of `make test-batch` on the host.
func slurmConforms(t *testing.T, h *metallab.Host, cases []string) {
	bringProgram(t, h, "batch")
	var sum struct {
		Failed  int
		Systems map[string]struct{ Passed int }
	}
	out := run(t, h, fmt.Sprintf("/root/batch -slow 8 -systems slurm-installed -cases '^(%s)$' 2>&1 || true",
		strings.Join(cases, "|")))
	t.Log(out)
	last := out[strings.LastIndexByte(out, '\n')+1:]
	if !strings.HasPrefix(last, "{") { // it says in words that cases failed
		last = regexp.MustCompile(`(?m)^\{"systems".*$`).FindString(out)
	}
	if err := json.Unmarshal([]byte(last), &sum); err != nil {
		t.Fatal(err)
	}
	const elsewhere = 4 // that this Slurm's version or configuration does not have
	if passed := sum.Systems["slurm-installed"].Passed; sum.Failed > 0 || passed < len(cases)-elsewhere {
		t.Errorf("%d cases failed, %d of %d passed", sum.Failed, passed, len(cases))
	}
}

// slurmPowerLoss: nothing of a job that was lost with its host is in the way of the next. What Slurm says of the lost
// one depends on what slurmctld had saved when its power went, too: it starts it again, ends it, or looks for it half
// an hour later.
func slurmPowerLoss(t *testing.T, h *metallab.Host) {
	run(t, h, slurmHome+"rm -f stop\nrunuser -u nobody -- sbatch --parsable --no-requeue --chdir=/srv/slurmlab/home "+
		"-o lost.out ./j.sh >/root/job; sync")
	await(t, h, "the job is up", "grep -q up /srv/slurmlab/home/lost.out")
	run(t, h, "sync")
	h.PowerLoss()
	if err := h.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			words, err := h.Run(context.WithoutCancel(t.Context()), "sacct -X -D -o jobid,state,start,end; "+
				"sinfo -N -l; scontrol show jobs; systemctl --failed; "+
				"journalctl -b -q --no-pager -n 200 -u 'slurm*' -u mariadb -u munge")
			t.Log(words, err)
		}
	}()
	await(t, h, "slurmctld answers", "scontrol ping | grep -q UP && sinfo -h -o %T | grep -q 'idle\\|mixed\\|alloc'")
	t.Log("the lost job: ", run(t, h, "sacct -n -X -D -P -j $(cat /root/job) -o state,start; "+
		"scancel $(cat /root/job) || true"))
	await(t, h, "the node takes jobs", `test "$(sinfo -h -o %T)" = idle`)
	run(t, h,
		`cd /srv/slurmlab/home; touch stop; runuser -u nobody -- srun --chdir=/srv/slurmlab/home ./j.sh | grep -x up; rm stop`)
	nothingLeft(t, h)
}

// await waits for something that comes by itself.
func await(t *testing.T, h *metallab.Host, what, condition string) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, fmt.Errorf("waited %v", timeout))
	defer cancel()
	if out, err := h.Run(ctx, "until { "+condition+"; } 2>/root/await >&2; do sleep 1; done"); err != nil {
		last, _ := h.Run(t.Context(), "cat /root/await")
		t.Fatalf("not %s: %v %s; last: %s", what, err, out, last)
	}
}
