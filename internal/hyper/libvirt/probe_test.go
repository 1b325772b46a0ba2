package libvirt

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// probeLab runs tests that probe in a mount namespace with a /dev/kvm and a QEMU of their own: the test program runs itself again there.
func probeLab(t *testing.T, qemu string, c ProbeConfig, within time.Duration) (verdicts []Verdict, booted int) {
	t.Helper()
	dir := t.TempDir()
	script, boots, image := filepath.Join(dir, "qemu"), filepath.Join(dir, "boots"), filepath.Join(dir, "image")
	for path, text := range map[string]string{script: "#!/bin/sh\necho >>" + boots + "\n" + qemu + "\n", boots: "", image: "kernel"} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if c.CacheFile == "" {
		c.CacheFile = filepath.Join(dir, "cache")
	}
	setup := fmt.Sprintf("set -e; mknod -m 600 %[1]s/kvm c 1 3; mount --bind %[1]s/kvm /dev/kvm; mount --bind %[2]s /usr/bin/qemu-system-x86_64; exec \"$0\" \"$@\"", dir, script)
	cmd := exec.Command("unshare", "--mount", "sh", "-c", setup, os.Args[0], "-test.run=^TestProbeInside$", "-test.v")
	cmd.Env = append(os.Environ(), "PROBE_INSIDE="+fmt.Sprintf("%s %s %d %d %d", image, c.CacheFile, c.Timeout.Milliseconds(), c.Limit.Milliseconds(), within.Milliseconds()))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if text, ok := strings.CutPrefix(line, "verdict "); ok {
			var v Verdict
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				t.Fatal(err)
			}
			verdicts = append(verdicts, v)
		}
	}
	text, err := os.ReadFile(boots)
	if err != nil {
		t.Fatal(err)
	}
	return verdicts, strings.Count(string(text), "\n")
}

// TestProbeInside is no test: it is what probeLab runs.
func TestProbeInside(t *testing.T) {
	var image, cache string
	var soon, limit, within int
	if _, err := fmt.Sscan(os.Getenv("PROBE_INSIDE"), &image, &cache, &soon, &limit, &within); err != nil {
		return // not run by probeLab
	}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	ctx, cancel := context.WithTimeout(t.Context(), ms(within))
	defer cancel()
	Probe(ctx, ProbeConfig{Image: func() (string, string) { return image, image }, Timeout: ms(soon), Limit: ms(limit), CacheFile: cache}, func(v Verdict) {
		text, _ := json.Marshal(v)
		fmt.Printf("verdict %s\n", text)
	})
}

func TestProbe(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skip probe: a mount namespace needs root")
	}
	for _, path := range []string{"/dev/kvm", "/usr/bin/qemu-system-x86_64"} {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("skip probe: there is no %s to mount another one over", path)
		}
	}
	const up = "echo 'Run /init as init process'; exec sleep 60"
	const long = 30 * time.Second
	quick := ProbeConfig{Timeout: 20 * time.Second, Limit: 20 * time.Second}
	tcg := func(why string) Verdict { return Verdict{TCG, why} }
	for _, c := range []struct {
		name, qemu string
		c          ProbeConfig
		within     time.Duration
		want       []Verdict
	}{
		{"works", up, quick, long, []Verdict{{Accelerator: KVM}}},
		{"gives up", "echo 'no such CPU' >&2; exit 1", quick, long, []Verdict{tcg("/dev/kvm opens, but QEMU gives up under KVM: no such CPU")}},
		{"slow", "sleep 2; " + up, ProbeConfig{Timeout: 100 * time.Millisecond, Limit: 20 * time.Second}, long,
			[]Verdict{tcg("a guest under KVM has not reached user space within 100ms; it is given more time"), {Accelerator: KVM}}},
		{"hangs", "exec sleep 60", ProbeConfig{Timeout: 100 * time.Millisecond, Limit: 300 * time.Millisecond}, 2 * time.Second,
			[]Verdict{tcg("a guest under KVM has not reached user space within 100ms; it is given more time"),
				tcg("/dev/kvm opens, but a guest under KVM hangs: it printed nothing within 300ms")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.c.CacheFile = filepath.Join(t.TempDir(), "cache")
			got, booted := probeLab(t, c.qemu, c.c, c.within)
			if fmt.Sprint(got) != fmt.Sprint(c.want) || booted != 1 {
				t.Errorf("after %d boots the verdicts are %+v, want %+v", booted, got, c.want)
			}
			// The next agent on this boot of the host knows, without another guest.
			got, booted = probeLab(t, c.qemu, c.c, 2*time.Second)
			if last := c.want[len(c.want)-1]; len(got) != 1 || got[0] != last || booted != 0 {
				t.Errorf("asked again: %+v after %d boots, want %+v", got, booted, last)
			}
		})
	}
}

// TestProbeLate tries again what came to no end, a few times.
func TestProbeLate(t *testing.T) {
	if tryAgain(1) >= tryAgain(2) || tryAgain(1) < time.Minute {
		t.Error("attempts that keep a CPU busy follow each other too soon")
	}
}

func TestProbeWithoutKernel(t *testing.T) {
	for name, image := range map[string]string{"none": "", "not there": "/nowhere"} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var got []Verdict
		Probe(ctx, ProbeConfig{Image: func() (string, string) { return image, image }}, func(v Verdict) { got = append(got, v) })
		if len(got) != 1 || got[0].Accelerator != TCG || got[0].Why == "" {
			t.Errorf("%s: verdicts %+v, want emulation and why", name, got)
		}
	}
}

// TestUse replaces the verdict: machines that are made later follow it, unless libvirt's QEMU cannot use KVM.
func TestUse(t *testing.T) {
	l, err := New(Config{Socket: "/nowhere", RunDir: "/nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if v, err := l.awaitAccelerator(ctx); err == nil {
		t.Errorf("a verdict before there was one: %+v", v)
	}
	for _, want := range []Verdict{{TCG, "slow"}, {Accelerator: KVM}} {
		l.Use(want)
		if v, err := l.awaitAccelerator(t.Context()); err != nil || v != want {
			t.Errorf("got %+v, %v; want %+v", v, err, want)
		}
	}
	l.accelerator.denied = "QEMU's own user may not"
	if v := l.Accelerator(); v != (Verdict{TCG, "QEMU's own user may not"}) {
		t.Errorf("got %+v, although QEMU cannot use KVM", v)
	}
}
