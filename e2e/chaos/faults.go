package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
)

// fault is something that hangs, lies or is full for a while. What begin did, end takes back.
type fault struct {
	least, most time.Duration
	libvirt     bool // libvirtd cannot be killed and started meanwhile
	begin, end  func(ctx context.Context, f *faults) error
}

// kinds of faults, by the name that the figures count them under.
var kinds = map[string]fault{
	"libvirtd-stopped": {5 * time.Second, time.Minute, true,
		func(_ context.Context, f *faults) error { return f.lab.SignalLibvirtd(syscall.SIGSTOP) },
		func(_ context.Context, f *faults) error { return f.lab.SignalLibvirtd(syscall.SIGCONT) }},
	"libvirt-silent": {5 * time.Second, 40 * time.Second, true,
		func(_ context.Context, f *faults) error { f.lab.Proxy.Stall(); return nil }, flow},
	"libvirt-slow": {25 * time.Second, 45 * time.Second, true,
		func(_ context.Context, f *faults) error { f.lab.Proxy.Delay(20 * time.Second); return nil }, flow},
	"libvirt-refuses": {2 * time.Second, 20 * time.Second, true,
		func(_ context.Context, f *faults) error { f.lab.Proxy.Refuse(); return nil }, flow},
	"domain-undying": {15 * time.Second, 40 * time.Second, true, stick, release},
	"disk-full":      {5 * time.Second, 20 * time.Second, false, fill, empty},
	"clock-ahead": {2 * time.Second, 10 * time.Second, false,
		func(_ context.Context, f *faults) error { f.clock.jump(time.Hour); return nil }, settle},
	"clock-behind": {2 * time.Second, 10 * time.Second, false,
		func(_ context.Context, f *faults) error { f.clock.jump(-time.Hour); return nil }, settle},
	"agent-stopped": {5 * time.Second, 30 * time.Second, false,
		func(_ context.Context, f *faults) error { f.lab.SignalAgent(syscall.SIGSTOP); return nil },
		func(_ context.Context, f *faults) error { f.lab.SignalAgent(syscall.SIGCONT); return nil }},
}

func flow(_ context.Context, f *faults) error { return f.lab.Proxy.Flow() }

func settle(_ context.Context, f *faults) error { f.clock.jump(0); return nil }

// choose returns the names of kinds in a comma-separated list; of all where it is empty.
func choose(list string) ([]string, error) {
	all := slices.Sorted(maps.Keys(kinds))
	switch list {
	case "":
		return all, nil
	case "none":
		return nil, nil
	}
	chosen := strings.Split(list, ",")
	for _, name := range chosen {
		if _, ok := kinds[name]; !ok {
			return nil, fmt.Errorf("no fault %q; there are %s", name, strings.Join(all, ", "))
		}
	}
	return chosen, nil
}

// faults come one after the other, with a pause between two of them. Each kind comes once before any comes again.
type faults struct {
	lab    *lab.Lab
	clock  *clock
	kinds  []string
	queue  []string
	active string // "": none
	until  time.Time
	next   time.Time
	husk   string // a domain that cannot be destroyed
}

func newFaults(l *lab.Lab, c *clock, kinds []string) *faults {
	return &faults{lab: l, clock: c, kinds: kinds}
}

// step ends the fault whose time is over, or begins one when it is time. It returns the name of the one that it began.
func (f *faults) step(ctx context.Context, r *rand.Rand) (string, error) {
	now := time.Now()
	if f.active != "" {
		if now.Before(f.until) {
			return "", nil
		}
		f.next = now.Add(between(r, 2*time.Second, 8*time.Second))
		return "", f.end(ctx)
	}
	if len(f.kinds) == 0 || now.Before(f.next) {
		return "", nil
	}
	if len(f.queue) == 0 {
		f.queue = slices.Clone(f.kinds)
		r.Shuffle(len(f.queue), func(i, j int) { f.queue[i], f.queue[j] = f.queue[j], f.queue[i] })
	}
	name := f.queue[0]
	f.queue = f.queue[1:]
	k := kinds[name]
	f.active, f.until = name, now.Add(between(r, k.least, k.most))
	fmt.Printf("%s for %v\n", name, f.until.Sub(now).Round(time.Second))
	return name, k.begin(ctx, f)
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// end takes back the fault that is there, if any.
func (f *faults) end(ctx context.Context) error {
	name := f.active
	if f.active = ""; name == "" {
		return nil
	}
	return kinds[name].end(ctx, f)
}

// libvirtdSound reports whether libvirtd may be killed, and answers once it is started again.
func (f *faults) libvirtdSound() bool { return f.active == "" || !kinds[f.active].libvirt }

// stick has libvirt know a machine of the agent's that has no process, and refuse to drop it after the 30 seconds that
// libvirt takes to refuse.
func stick(ctx context.Context, f *faults) error {
	id := api.NewID()
	f.husk = "grange-" + id[:8]
	text := fmt.Sprintf(`<domain type="qemu"><name>%s</name><uuid>%s</uuid><memory unit="MiB">64</memory><vcpu>1</vcpu>
<metadata><grange:vm xmlns:grange="https://grange.dev/xmlns/vm/1">%s</grange:vm></metadata>
<os><type arch="x86_64" machine="pc">hvm</type></os>
<devices><serial type="unix"><source mode="bind" path="%s"/></serial></devices></domain>`,
		f.husk, id, base64.StdEncoding.EncodeToString([]byte("{}")),
		filepath.Join(f.lab.Dir, "run/vm", f.husk, "console"))
	path := filepath.Join(f.lab.Dir, "husk.xml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	if _, err := f.lab.Virsh(ctx, "define", path); err != nil {
		return fmt.Errorf("define a domain: %w", err)
	}
	f.lab.Proxy.Stick(30 * time.Second)
	return nil
}

func release(ctx context.Context, f *faults) error {
	if _, err := f.lab.Virsh(ctx, "undefine", f.husk); err != nil {
		return fmt.Errorf("undefine %s: %w", f.husk, err)
	}
	return f.lab.Proxy.Flow()
}

func (f *faults) ballast() string { return filepath.Join(f.lab.Dir, "state", "ballast") }

// fill takes all space of the file system that the agent's state is on.
func fill(_ context.Context, f *faults) error {
	file, err := os.Create(f.ballast())
	if err != nil {
		return nil // full already
	}
	defer file.Close()
	for size := int64(1 << 30); size >= 4096; {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		if syscall.Fallocate(int(file.Fd()), 0, info.Size(), size) != nil {
			size /= 2
		}
	}
	return nil
}

func empty(_ context.Context, f *faults) error {
	if err := os.Remove(f.ballast()); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
