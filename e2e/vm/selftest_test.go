package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
)

// selfReport is what `grange selftest --json` prints, as far as tests look at it.
type selfReport struct {
	Schema  int
	Verdict string
	Counts  struct{ Good, Bad int }
	Checks  []struct {
		Name, Verdict, Reason, Remedy string
		Figures                       map[string]float64
		Details                       []string
	}
}

func selfTest(t *testing.T, status int, args ...string) (selfReport, string) {
	t.Helper()
	out := run(t, host.Grange(longer(t), append([]string{"selftest", "--json", "--yes", "--config", host.Config},
		args...)...), "")
	var r selfReport
	if err := json.Unmarshal([]byte(out.out), &r); err != nil || out.code != status {
		t.Fatalf("status %d, want %d; %v\n%s\n%s", out.code, status, err, out.out, out.errors)
	}
	return r, out.out
}

// longer is the limit of a self test, which makes some thirty VMs.
func longer(t *testing.T) context.Context {
	long, cancel := context.WithTimeout(t.Context(), 3*limit)
	t.Cleanup(cancel)
	return long
}

// minutes skips a test of many VMs, which takes minutes under emulation.
func minutes(t *testing.T) {
	t.Helper()
	if os.Getenv("GRANGE_SLOW") == "" {
		t.Skip("takes minutes; `make test-slow` runs it")
	}
}

// TestSelfTest: an emulated host is told so, all else works, and neither report names the site.
func TestSelfTest(t *testing.T) {
	minutes(t)
	page := filepath.Join(t.TempDir(), "report.html")
	r, text := selfTest(t, 4, "--only",
		"libvirt,cgroup,kvm,shapes,pins,topology,streams,exit-status,start,memory,cpu,leaks", "--jobs", "4", "-o", page)
	for _, c := range r.Checks {
		t.Logf("%-14s %-12s %s %v", c.Verdict, c.Name, c.Reason, c.Figures)
		switch c.Name {
		case "kvm":
			if lab.Accelerator() == "tcg" && (c.Verdict != "bad" || c.Remedy == "") {
				t.Errorf("an emulated VM is taken for KVM's: %+v", c)
			}
		case "libvirt", "shapes", "topology", "streams", "exit-status", "memory", "leaks":
			if c.Verdict != "good" {
				t.Errorf("%+v", c)
			}
		case "start":
			if c.Figures["pairs"] < 4 || c.Figures["ratio"] < 1 || c.Figures["phase_boot_ms"] <= 0 {
				t.Errorf("starts were not measured: %+v", c)
			}
		case "cpu":
			if c.Figures["compute_ratio"] <= 0 || c.Figures["memory_ratio"] <= 0 {
				t.Errorf("the load was not measured: %+v", c)
			}
		}
		if len(c.Details) > 0 {
			t.Errorf("%s tells details without --site: %v", c.Name, c.Details)
		}
	}
	html, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range siteNames(t) {
		if strings.Contains(text, name) || strings.Contains(string(html), name) {
			t.Errorf("the report names %q", name)
		}
	}
	if strings.Contains(string(html), "<script") || strings.Contains(string(html), "http") {
		t.Error("the page needs more than itself")
	}
}

// siteNames is what must not be in a report: the host, its addresses, users and paths.
func siteNames(t *testing.T) []string {
	t.Helper()
	names := []string{host.Dir, "/root", os.TempDir() + "/"}
	if name, err := os.Hostname(); err == nil && len(name) > 3 {
		names = append(names, name)
	}
	if u, err := user.Current(); err == nil && u.Username != "root" {
		names = append(names, u.Username)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		names = append(names, strings.Split(a.String(), "/")[0])
	}
	for _, file := range []string{"/etc/machine-id", "/proc/sys/kernel/random/boot_id",
		"/sys/class/dmi/id/product_serial"} {
		if text, err := os.ReadFile(file); err == nil && len(strings.TrimSpace(string(text))) > 5 {
			names = append(names, strings.TrimSpace(string(text)))
		}
	}
	return names
}

// TestSelfTestFindsLeaks: what appears while jobs run, and stays, is found, counted, and named with --site only.
func TestSelfTestFindsLeaks(t *testing.T) {
	minutes(t)
	j := launch(t, host.Grange(longer(t), "selftest", "--json", "--yes", "--site", "--config", host.Config, "--only",
		"leaks", "--jobs", "3"))
	await(t, host, "the second job", atLeastJobs(t, 2))
	leak := filepath.Join(host.Dir, "run", fmt.Sprintf("leak-%d", os.Getpid()))
	if err := os.WriteFile(leak, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(leak) })
	out := j.finish(t)
	var r selfReport
	if err := json.Unmarshal([]byte(out.out), &r); err != nil || out.code != 4 || len(r.Checks) != 1 {
		t.Fatalf("status %d, %v\n%s\n%s", out.code, err, out.out, out.errors)
	}
	c := r.Checks[0]
	if c.Verdict != "bad" || c.Figures["left"] != 1 || !strings.Contains(strings.Join(c.Details, "\n"), leak) {
		t.Errorf("%+v", c)
	}
}

// TestSelfTestGivenUp: an interrupt ends the test's VM, and a test that is killed leaves it to the agent.
func TestSelfTestGivenUp(t *testing.T) {
	for _, s := range []os.Signal{os.Interrupt, os.Kill} {
		j := launch(t, host.Grange(longer(t), "selftest", "--yes", "--config", host.Config, "--only", "cpu"))
		await(t, host, "a VM of the test", hasState("running"))
		j.Process.Signal(s)
		out := j.finish(t)
		if s == os.Interrupt && out.code != 130 {
			t.Errorf("status %d, want 130: %s", out.code, out.errors)
		}
		await(t, host, "no VM any more", noVMs)
	}
}

// TestSelfTestAsks: where others' jobs run nothing is begun without consent.
func TestSelfTestAsks(t *testing.T) {
	start(t, host, "--", "sh", "-c", "echo up; sleep 1000")
	r := run(t, host.Grange(ctx(t), "selftest", "--config", host.Config, "--only", "cgroup"), "")
	if r.code != 2 || !strings.Contains(r.errors, "1 VMs run here") || !strings.Contains(r.errors, "--yes") {
		t.Errorf("status %d: %s", r.code, r.errors)
	}
}

// atLeastJobs is satisfied when so many VMs with different IDs were seen.
func atLeastJobs(t *testing.T, n int) func([]api.VM) bool {
	t.Helper()
	seen := map[string]bool{}
	return func(vms []api.VM) bool {
		for _, v := range vms {
			seen[v.ID] = true
		}
		return len(seen) >= n
	}
}
