package libvirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/waittest"
)

// probeLab runs tests that probe in a mount namespace with a /dev/kvm and a QEMU of their own: the test program runs
// itself again there.
func probeLab(t *testing.T, qemu string, c ProbeConfig, within time.Duration) (verdicts []Verdict, booted int) {
	t.Helper()
	dir := t.TempDir()
	script, boots, image := filepath.Join(dir, "qemu"), filepath.Join(dir, "boots"), filepath.Join(dir, "image")
	for path, text := range map[string]string{script: "#!/bin/sh\nBOOTS=" + boots + "\necho >>$BOOTS\n" + qemu + "\n",
		boots: "", image: "kernel"} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if c.CacheFile == "" {
		c.CacheFile = filepath.Join(dir, "cache")
	}
	setup := fmt.Sprintf("set -e; mknod -m 600 %[1]s/kvm c 1 3; mount --bind %[1]s/kvm /dev/kvm; mount --bind %[2]s "+
		"/usr/bin/qemu-system-x86_64; exec \"$0\" \"$@\"", dir, script)
	cmd := exec.Command("unshare", "--mount", "sh", "-c", setup, os.Args[0], "-test.run=^TestProbeInside$", "-test.v")
	cmd.Env = append(os.Environ(), "PROBE_INSIDE="+fmt.Sprintf("%s %s %d %d %d", image, c.CacheFile,
		c.Timeout.Milliseconds(), c.Limit.Milliseconds(), within.Milliseconds()))
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

func needProbeLab(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skip probe: a mount namespace needs root")
	}
	for _, path := range []string{"/dev/kvm", "/usr/bin/qemu-system-x86_64"} {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("skip probe: there is no %s to mount another one over", path)
		}
	}
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
	again, asked := make(chan struct{}, 1), os.Getenv("PROBE_AGAIN") == ""
	var looks atomic.Int64
	held := func() bool { // for some looks once the file is there
		file := os.Getenv("PROBE_HELD")
		if _, err := os.Stat(file); err != nil {
			return false
		}
		if looks.Add(1) > 3 {
			os.Remove(file)
		}
		return true
	}
	Probe(ctx, ProbeConfig{Image: func() (string, string) { return image, image }, Timeout: ms(soon), Limit: ms(limit),
		CacheFile: cache, Again: again, Held: held}, func(v Verdict) {
		text, _ := json.Marshal(v)
		fmt.Printf("verdict %s\n", text)
		if !asked {
			asked = true
			if err := os.Remove(cache); err != nil {
				t.Error(err)
			}
			again <- struct{}{}
			return
		}
		if !strings.Contains(v.Why, "given more time") && limit > 1000 {
			cancel() // the last one before KVM is loaded anew
		}
	})
}

// TestNoDevice: what is in the place of KVM's device is told from it.
func TestNoDevice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kvm")
	if v, err := device(file); err == nil || !strings.Contains(v.Why, "has no /dev/kvm") {
		t.Errorf("nothing: %+v, %v", v, err)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if v, err := device(file); err == nil || !strings.Contains(v.Why, "rm /dev/kvm") {
		t.Errorf("a file: %+v, %v", v, err)
	}
	if v, err := device("/dev/null"); err != nil {
		t.Errorf("a device: %+v, %v", v, err)
	}
}

func TestProbe(t *testing.T) {
	needProbeLab(t)
	const up = "echo 'Run /init as init process'; exec sleep 60"
	// A probe ends with its last verdict, but for one whose guest hangs: that is looked at for as long.
	const long, observed = waittest.Limit, 5 * time.Second
	quick := ProbeConfig{Timeout: 20 * time.Second, Limit: 20 * time.Second}
	tcg := func(why string) Verdict { return Verdict{TCG, why} }
	for _, c := range []struct {
		name, qemu string
		c          ProbeConfig
		within     time.Duration
		want       []Verdict
	}{
		{"works", up, quick, long, []Verdict{{Accelerator: KVM}}},
		{"gives up", "echo 'no such CPU' >&2; exit 1", quick, long,
			[]Verdict{tcg("/dev/kvm opens, but QEMU gives up under KVM: no such CPU")}},
		{"slow", "sleep 2; " + up, ProbeConfig{Timeout: 100 * time.Millisecond, Limit: 20 * time.Second}, long,
			[]Verdict{tcg("a guest under KVM has not reached user space within 100ms; it is given more time"),
				{Accelerator: KVM}}},
		{"hangs", "exec sleep 60", ProbeConfig{Timeout: 100 * time.Millisecond, Limit: 300 * time.Millisecond},
			observed, []Verdict{tcg(
				"a guest under KVM has not reached user space within 100ms; it is given more time"),
				tcg("/dev/kvm opens, but a guest under KVM hangs: it printed nothing within 300ms")}},
		{"goes on", "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.5; done; " + up,
			ProbeConfig{Timeout: 100 * time.Millisecond, Limit: 2 * time.Second}, long,
			[]Verdict{tcg("a guest under KVM has not reached user space within 100ms; it is given more time"),
				{Accelerator: KVM}}},
		{"goes on for ever", "while :; do echo x; sleep 0.1; done",
			ProbeConfig{Timeout: 100 * time.Millisecond, Limit: time.Second}, 15 * time.Second,
			[]Verdict{tcg("a guest under KVM has not reached user space within 100ms; it is given more time"),
				tcg("/dev/kvm opens, but a guest under KVM is very slow: it did not reach user space within 5s")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.c.CacheFile = filepath.Join(t.TempDir(), "cache")
			got, booted := probeLab(t, c.qemu, c.c, c.within)
			if fmt.Sprint(got) != fmt.Sprint(c.want) || booted != 1 {
				t.Errorf("after %d boots the verdicts are %+v, want %+v", booted, got, c.want)
			}
			// The next agent on this boot of the host knows, without another guest.
			again := observed
			if c.within == long { // it ends with the verdict
				again = long
			}
			got, booted = probeLab(t, c.qemu, c.c, again)
			if last := c.want[len(c.want)-1]; len(got) != 1 || got[0] != last || booted != 0 {
				t.Errorf("asked again: %+v after %d boots, want %+v", got, booted, last)
			}
		})
	}
}

// TestProbeAgain: where KVM worked before, a guest that is slow now has VMs wait, and not run in emulation.
func TestProbeAgain(t *testing.T) {
	needProbeLab(t)
	t.Setenv("PROBE_AGAIN", "1")
	slow := `test $(wc -l <"$BOOTS") -eq 1 || sleep 7; echo 'Run /init as init process'; exec sleep 60`
	got, booted := probeLab(t, slow, ProbeConfig{Timeout: 5 * time.Second, Limit: 20 * time.Second}, waittest.Limit)
	if want := []Verdict{{Accelerator: KVM}, {Accelerator: KVM}}; fmt.Sprint(got) != fmt.Sprint(want) || booted != 2 {
		t.Errorf("after %d boots the verdicts are %+v, want %+v", booted, got, want)
	}
}

// TestProbeHeld: on a drained host nothing is tried, and then it is.
func TestProbeHeld(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	looks, verdicts := 0, 0
	Probe(ctx, ProbeConfig{Image: func() (string, string) { return "", "" },
		CacheFile: filepath.Join(t.TempDir(), "cache"), Held: func() bool { looks++; return looks < 4 }},
		func(Verdict) {
			verdicts++
			if looks != 4 {
				t.Errorf("a verdict after %d looks", looks)
			}
			cancel()
		})
	if verdicts != 1 {
		t.Errorf("%d verdicts", verdicts)
	}
	Probe(ctx, ProbeConfig{Held: func() bool { return true }}, nil) // ends with its context
}

// TestProbeEndsItsGuest: a host that is drained while the guest boots ends it, without a verdict, and tries again when
// the drain is over.
func TestProbeEndsItsGuest(t *testing.T) {
	needProbeLab(t)
	drained := filepath.Join(t.TempDir(), "drained")
	t.Setenv("PROBE_HELD", drained)
	hangs := `test $(wc -l <"$BOOTS") -gt 1 || { touch ` + drained + `; exec sleep 60; }
echo 'Run /init as init process'; exec sleep 60`
	got, booted := probeLab(t, hangs, ProbeConfig{Timeout: 20 * time.Second, Limit: 20 * time.Second}, 30*time.Second)
	if want := []Verdict{{Accelerator: KVM}}; fmt.Sprint(got) != fmt.Sprint(want) || booted != 2 {
		t.Errorf("after %d boots the verdicts are %+v, want %+v", booted, got, want)
	}
}

// TestProbeRemembers: a host whose KVM worked in an earlier boot has VMs wait for it in this one.
func TestProbeRemembers(t *testing.T) {
	needProbeLab(t)
	file := filepath.Join(t.TempDir(), "cache")
	if err := writeCache(file, cachedVerdict{BootID: "earlier", Verdict: Verdict{Accelerator: KVM}}); err != nil {
		t.Fatal(err)
	}
	slow := ProbeConfig{Timeout: 100 * time.Millisecond, Limit: 20 * time.Second, CacheFile: file}
	got, booted := probeLab(t, "sleep 2; echo 'Run /init as init process'; exec sleep 60", slow, 30*time.Second)
	if want := []Verdict{{Accelerator: KVM}}; fmt.Sprint(got) != fmt.Sprint(want) || booted != 1 {
		t.Errorf("after %d boots the verdicts are %+v, want %+v", booted, got, want)
	}
}

// TestSettling waits for the device of a host that boots, for a while.
func TestSettling(t *testing.T) {
	udevQueue = filepath.Join(t.TempDir(), "queue")
	t.Cleanup(func() { udevQueue = "/run/udev/queue" })
	if settling(time.Second) {
		t.Error("udev is waited for where it has nothing to do")
	}
	if err := os.WriteFile(udevQueue, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !settling(time.Minute) || settling(mostSettle) {
		t.Error("udev is not waited for, or for ever")
	}
	if up := uptime(); up < time.Second || up > 10*365*24*time.Hour {
		t.Errorf("up for %v", up)
	}
}

// TestProbeLate tries again what came to no end, a few times.
func TestProbeLate(t *testing.T) {
	if tryAgain(1) >= tryAgain(2) || tryAgain(1) < time.Minute {
		t.Error("attempts that keep a CPU busy follow each other too soon")
	}
	for _, c := range []struct {
		late int
		err  error
		want int
	}{
		{2, nil, 0}, {2, errors.New("gives up"), 0}, {0, errLate, 1}, {2, fmt.Errorf("%w: still", errLate), mostLate},
		{0, errSlow, 1}, {2, fmt.Errorf("%w: slow", errSlow), 2},
	} {
		if got := lateAfter(c.late, c.err); got != c.want {
			t.Errorf("%v after %d: %d, want %d", c.err, c.late, got, c.want)
		}
	}
}

func TestProbeWithoutKernel(t *testing.T) {
	for name, image := range map[string]string{"none": "", "not there": "/nowhere"} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var got []Verdict
		again := make(chan struct{}, 1)
		again <- struct{}{} // whoever asks again is told again, also the same
		Probe(ctx, ProbeConfig{Image: func() (string, string) { return image, image }, Again: again},
			func(v Verdict) { got = append(got, v) })
		if len(got) != 2 || got[0].Accelerator != TCG || got[0].Why == "" || got[1] != got[0] {
			t.Errorf("%s: verdicts %+v, want emulation and why, twice", name, got)
		}
	}
}

// A verdict is kept for one load of the module on one boot of the host: another load may have other parameters.
func TestKeptVerdict(t *testing.T) {
	kept := cachedVerdict{BootID: "b", Load: "kvm_amd 17", Digest: "d"}
	for name, c := range map[string]struct {
		key  cachedVerdict
		want bool
	}{
		"the same":        {kept, true},
		"another load":    {cachedVerdict{BootID: "b", Load: "kvm_amd 18", Digest: "d"}, false},
		"not loaded now":  {cachedVerdict{BootID: "b", Digest: "d"}, false},
		"another boot":    {cachedVerdict{BootID: "c", Load: "kvm_amd 17", Digest: "d"}, false},
		"another guest":   {cachedVerdict{BootID: "b", Load: "kvm_amd 17", Digest: "e"}, false},
		"the other maker": {cachedVerdict{BootID: "b", Load: "kvm_intel 17", Digest: "d"}, false},
	} {
		if got := kept.holdsFor(c.key); got != c.want {
			t.Errorf("%s: %v", name, got)
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
	if v, err := l.accelerator.await(ctx); err == nil {
		t.Errorf("a verdict before there was one: %+v", v)
	}
	for _, want := range []Verdict{{TCG, "slow"}, {Accelerator: KVM}} {
		l.Use(want)
		if v, err := l.accelerator.await(t.Context()); err != nil || v != want {
			t.Errorf("got %+v, %v; want %+v", v, err, want)
		}
	}
	l.Forget()
	l.Forget()
	forgotten, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if v, err := l.accelerator.await(forgotten); err == nil {
		t.Errorf("a verdict that was forgotten: %+v", v)
	}
	l.Use(Verdict{Accelerator: KVM})
	l.accelerator.denied = "QEMU's own user may not"
	if v := l.Accelerator(); v != (Verdict{TCG, "QEMU's own user may not"}) {
		t.Errorf("got %+v, although QEMU cannot use KVM", v)
	}
}

// TestVerdictAsksAnew: what libvirt said of KVM while its module was out does not outlive a verdict that KVM works.
func TestVerdictAsksAnew(t *testing.T) {
	l, err := New(Config{Socket: "/nowhere", RunDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connected := func() *session {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { theirs.Close() })
		conn := &watchedConn{Conn: ours, ended: make(chan struct{})}
		s := &session{conn: conn, ended: conn.ended, retired: make(chan struct{}), read: make(chan struct{}),
			asked: time.Now(), owner: [2]int{os.Getuid(), os.Getgid()}}
		l.daemon.mu.Lock()
		l.daemon.current = s
		l.daemon.mu.Unlock()
		return s
	}
	s := connected()
	l.Use(Verdict{Accelerator: KVM})
	if isClosed(s.retired) {
		t.Error("a connection whose libvirt has KVM is made anew")
	}
	l.Forget()
	l.accelerator.sees(s)
	l.Use(Verdict{TCG, "no device"})
	if isClosed(s.retired) {
		t.Error("a connection is made anew for emulation")
	}
	l.Use(Verdict{Accelerator: KVM})
	if !isClosed(s.retired) || !isClosed(s.ended) {
		t.Error("the connection of a libvirt that had no KVM stays")
	}
	late := connected()
	late.enter()
	l.Use(Verdict{Accelerator: KVM})
	if isClosed(late.ended) {
		t.Error("a call was cut off")
	}
	if late.leave(); !isClosed(late.ended) {
		t.Error("the last call left the connection open")
	}
	asked := connected()
	l.accelerator.denied = ""
	l.Use(Verdict{Accelerator: KVM})
	if l.accelerator.sees(asked); !isClosed(asked.retired) {
		t.Error("an answer that was asked for before the verdict counts")
	}
	after := connected()
	if l.accelerator.sees(after); isClosed(after.retired) {
		t.Error("an answer that was asked for after the verdict does not count")
	}
}
