package apply

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// killed is what a faulty system panics with: the program ends there, as after a kill.
type killed struct{}

// faulty ends the program, or fails, when it is used for the nth time. Everything goes through Root, so n reaches the
// places between any two steps, and between a step's record and the step.
type faulty struct {
	System
	left int
	fail bool // in Write, SetService and Load, rather than anywhere
}

func (f *faulty) Root() *os.Root {
	f.count(false)
	return f.System.Root()
}

func (f *faulty) count(mayFail bool) error {
	if f.fail && !mayFail {
		return nil
	}
	f.left--
	if f.left != 0 {
		return nil
	}
	if f.fail {
		return errors.New("the disk is on fire")
	}
	panic(killed{})
}

func (f *faulty) Write(ctx context.Context, path, value string) error {
	if err := f.count(true); err != nil {
		return err
	}
	return f.System.Write(ctx, path, value)
}

func (f *faulty) SetService(ctx context.Context, unit string, want Service) error {
	if err := f.count(true); err != nil {
		return err
	}
	return f.System.SetService(ctx, unit, want)
}

func (f *faulty) Load(ctx context.Context, want []Module) error {
	if err := f.count(true); err != nil {
		return err
	}
	return f.System.Load(ctx, want)
}

// survives runs do and reports whether it came to its end.
func survives(do func()) (alive bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
		}
	}()
	do()
	return true
}

// randomTree is a host with some of the files that changes are about.
func randomTree(r *rand.Rand) map[string]string {
	files := map[string]string{
		"proc/meminfo": "MemTotal:       66000000 kB\nMemFree:        30000000 kB\nMemAvailable:   30000000 " +
			"kB\nHugePages_Total:       0\nHugePages_Free:        0\nHugepagesize:       2048 kB\n",
	}
	maybe := func(name string, texts ...string) {
		if n := r.IntN(len(texts) + 1); n < len(texts) {
			files[name] = texts[n]
		}
	}
	maybe(ksmRun, "0\n", "1\n", "1\n", "2\n")
	maybe(ksmDir+"/pages_sharing", "0\n", "5000\n", "123456\n")
	maybe(ksmDir+"/pages_shared", "17\n")
	maybe("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n", "[always] madvise never")
	maybe("sys/module/kvm_intel/parameters/ept", "N\n", "Y\n")
	maybe("sys/module/kvm_intel/parameters/nested", "0\n", "Y")
	maybe("sys/module/kvm_intel/initstate", "live\n")
	maybe("sys/module/other/initstate", "live\n")
	maybe("proc/sys/vm/swappiness", "60\n", "10\n")
	maybe("etc/modprobe.d/kvm.conf", "options kvm_intel ept=0\n", "options kvm-intel nested=1 ept=0", "# nothing\n")
	maybe("usr/lib/modprobe.d/kvm.conf", "options kvm_intel nested=0\n")
	maybe("etc/sysctl.conf", "vm.swappiness=60\n", "vm/swappiness = 10\nkernel.sysrq = 1\n")
	maybe("etc/sysctl.d/99-site.conf", "-vm.swappiness = 30\n")
	maybe(tmpfilesFile, header+"w /sys/kernel/mm/ksm/run - - - - 1\n",
		"w /sys/kernel/mm/ksm/sleep_millisecs - - - - 20")
	maybe(grubFile, "GRUB_CMDLINE_LINUX=\"console=tty0 hugepagesz=1G hugepages=8\"\n",
		"GRUB_CMDLINE_LINUX_DEFAULT='quiet transparent_hugepage=always'\n", "")
	maybe(grubDir+"/50-cloud.cfg", "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX transparent_hugepage=always\"\n")
	maybe(kernelFile, "root=/dev/sda1 quiet", "root=/dev/sda1 hugepages=5\n")
	maybe(entriesDir+"/a.conf", "title x\noptions root=/dev/sda1 transparent_hugepage=always\n")
	maybe("boot/grub2/grub.cfg", "menuentry x {\n\tlinux16 /vmlinuz-3.10 root=/dev/sda1 hugepages=55\n}\n")
	maybe("proc/812/comm", "ksmtuned\n", "numad\n")
	maybe("proc/812/status", "Name: x\n")
	maybe(unitDir+"/multi-user.target.wants/ksmtuned.service", "-> /usr/lib/systemd/system/ksmtuned.service")
	maybe("etc/rc3.d/S85numad", "-> ../init.d/numad")
	nodes := 1 + r.IntN(3)
	for _, size := range []int{2048, 1048576} {
		total := 0
		for node := range nodes {
			n := r.IntN(3)
			total += n
			dir := fmt.Sprintf("sys/devices/system/node/node%d/", node)
			pages := dir + fmt.Sprintf("hugepages/hugepages-%dkB/", size)
			files[pages+"nr_hugepages"], files[pages+"free_hugepages"] = fmt.Sprintln(n), fmt.Sprintln(n)
			files[dir+"meminfo"] = fmt.Sprintf(
				"Node %d MemTotal:       22000000 kB\nNode %d MemFree:        %d kB\nNode %d HugePages_Total:     0\n",
				node, node, 9000000+r.IntN(1000), node)
		}
		dir := fmt.Sprintf("sys/kernel/mm/hugepages/hugepages-%dkB/", size)
		files[dir+"nr_hugepages"], files[dir+"free_hugepages"] = fmt.Sprintln(total), fmt.Sprintln(total)
	}
	return files
}

// randomFindings asks for a random set of changes that do not contradict each other.
func randomFindings(r *rand.Rand) []tuning.Finding {
	all := []tuning.Change{
		{Kind: tuning.Unmerge},
		{Kind: tuning.SetValue, Path: ksmRun, Value: "0"},
		{Kind: tuning.SetValue, Path: "sys/kernel/mm/transparent_hugepage/enabled", Value: "never"},
		{Kind: tuning.SetValue, Path: "proc/sys/vm/swappiness", Value: "10"},
		{Kind: tuning.SetValue, Path: "sys/no/such/file", Value: "10"},
		{Kind: tuning.SetValue, Path: "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
			Value: "100"},
		{Kind: tuning.SetValue, Path: "sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages",
			Value: "100"},
		{Kind: tuning.SetValue, Path: "sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages",
			Value: fmt.Sprint(r.IntN(4))},
		{Kind: tuning.SetModule, Unit: "kvm-intel", Name: "ept", Value: "1", NoVMs: true},
		{Kind: tuning.SetModule, Unit: "kvm_intel", Name: "nested", Value: "1"},
		{Kind: tuning.SetService, Unit: "ksmtuned", Value: "off"},
		{Kind: tuning.SetService, Unit: "numad.service", Value: []string{"off", "on"}[r.IntN(2)]},
		{Kind: tuning.SetBoot, Name: "transparent_hugepage", Value: "never", Reboot: true},
		{Kind: tuning.SetBoot, Name: "quiet", Remove: true, Reboot: true},
	}
	pages := []tuning.Change{{Kind: tuning.SetBoot, Name: "hugepagesz", Value: "2M"},
		{Kind: tuning.SetBoot, Name: "hugepages", Value: "200"}}
	var out []tuning.Finding
	for i := range 1 + r.IntN(4) {
		f := tuning.Finding{Rule: fmt.Sprintf("rule-%d", i), Severity: tuning.Warning, Where: "host"}
		for range 1 + r.IntN(4) {
			f.Changes = append(f.Changes, all[r.IntN(len(all))])
		}
		if r.IntN(4) == 0 {
			f.Changes = append(f.Changes, pages...)
		}
		out = append(out, f)
	}
	return out
}

// TestRandomPlans applies and undoes random changes on random trees: all at once, cut short by a kill at any place,
// with a step that fails at any place, and with an undo that is killed at any place.
func TestRandomPlans(t *testing.T) {
	trees := 15
	if testing.Short() {
		trees = 10
	}
	kills := 0
	for seed := range uint64(trees) {
		r := rand.New(rand.NewPCG(seed, 3))
		files, findings := randomTree(r), randomFindings(r)
		root := extract(t, files)
		system := Tree(root)
		before := look(t, root)
		plan, err := NewPlan(t.Context(), system, findings)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if d := cmp.Diff(before, look(t, root)); d != "" {
			t.Fatalf("seed %d: making a plan changed the tree:\n%s", seed, d)
		}
		check := func(what string) {
			t.Helper()
			if d := cmp.Diff(before, look(t, root)); d != "" {
				t.Fatalf("seed %d, %s: (-before +after)\n%s\n%s", seed, what, d, plan.Text(nil, 0))
			}
		}
		if err := plan.Ready(system); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if _, err := Do(t.Context(), system, plan, Options{}); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, plan.Text(nil, 0))
		}
		if again, err := NewPlan(t.Context(), system, findings); err != nil || len(again.Steps) > 0 {
			t.Fatalf("seed %d: a second plan, %v:\n%s\nafter\n%s", seed, err, again.Text(nil, 0), plan.Text(nil, 0))
		}
		if d, err := Drift(t.Context(), system); err != nil || len(d) > 0 {
			t.Fatalf("seed %d: drift right after apply: %v %v", seed, d, err)
		}
		undo(t, system)
		check("undone")

		for n := 1; ; n++ {
			alive := survives(func() { Do(t.Context(), &faulty{System: system, left: n}, plan, Options{}) })
			if alive {
				break
			}
			kills++
			undoKilled(t, system, n)
			check(fmt.Sprintf("killed at use %d", n))
		}
		undo(t, system)
		for n := 1; ; n++ {
			_, err := Do(t.Context(), &faulty{System: system, left: n, fail: true}, plan, Options{})
			if err == nil {
				break
			}
			if own := new(farm.Error); !errors.As(err, &own) || own.Code != CodeApplyFailed {
				t.Fatalf("seed %d, failed at use %d: %v", seed, n, err)
			}
			check(fmt.Sprintf("failed at use %d", n))
		}
		undo(t, system)
		check("undone at last")
	}
	if kills < trees*5 {
		t.Errorf("%d kills of %d trees: the faults do not reach the steps", kills, trees)
	}
}

// undo takes back the last apply when there is one.
func undo(t *testing.T, system System) {
	t.Helper()
	_, err := Undo(t.Context(), system, "", false, Options{})
	if own := new(farm.Error); err != nil && (!errors.As(err, &own) || own.Code != CodeNoApply) {
		t.Fatal(err)
	}
}

// undoKilled undoes what a kill left. Every third time the undo is killed as well, again and again, each time a little
// later.
func undoKilled(t *testing.T, system System, n int) {
	t.Helper()
	if n%2 == 0 {
		halfWritten(t, system)
	}
	for m := 1; n%3 == 0; m += 1 + m/8 {
		if survives(func() { Undo(t.Context(), &faulty{System: system, left: m}, "", false, Options{}) }) {
			break
		}
	}
	undo(t, system)
	runs, err := History(system.Root())
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(runs, func(r *Run) bool { return r.Phase.open() || r.Phase == Applied }); i >= 0 {
		t.Fatalf("run %s is %s after undo", runs[i].ID, runs[i].Phase)
	}
	if err := system.Root().RemoveAll("var"); err != nil { // or reading the history would take longer and longer
		t.Fatal(err)
	}
}

// halfWritten leaves what a kill within the write of a file leaves: the text that was to become the file.
func halfWritten(t *testing.T, system System) {
	t.Helper()
	runs, err := History(system.Root())
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) == 0 || len(runs[len(runs)-1].records) == 0 {
		return
	}
	run := runs[len(runs)-1]
	r := run.records[len(run.records)-1]
	if s := run.Plan.Steps[r.Step]; s.Kind == StepFile && !run.done[r.Step] {
		if err := system.Root().WriteFile(scratchName(s.Path), []byte("half a fi"), 0o600); err != nil &&
			!missing(err) {
			t.Fatal(err)
		}
	}
}
