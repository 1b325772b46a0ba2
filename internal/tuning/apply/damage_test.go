package apply

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// swappiness makes a step for the value and one for the file that keeps it.
var swappiness = []tuning.Finding{{Rule: "swappiness", Where: "host",
	Changes: []tuning.Change{{Kind: tuning.SetValue, Path: "proc/sys/vm/swappiness", Value: "10"}}}}

// The agent keeps its images beside, where QEMU, under another user, has to reach them.
func TestOnlyTheJournalsAreSecret(t *testing.T) {
	root := extract(t, map[string]string{"proc/sys/vm/swappiness": "60\n"})
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	if err := doPlan(t, Tree(root), swappiness); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"var": 0o755, "var/lib": 0o755, "var/lib/grange": 0o755,
		stateDir: 0o700} {
		if info, err := root.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, want %v; %v", name, info.Mode().Perm(), want, err)
		}
	}
}

// fileLimit lets this process write no file longer than this many bytes: a write is cut short as by a full disk.
func fileLimit(t *testing.T, bytes uint64) {
	t.Helper()
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &l); err != nil {
		t.Fatal(err)
	}
	l.Cur = min(bytes, l.Max)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &l); err != nil {
		t.Fatal(err)
	}
}

// A journal that cannot be written any more is no reason to leave steps made, and never ends up with half a line
// inside. The limit is one of the process: a child has it.
func TestJournalThatCannotBeWritten(t *testing.T) {
	const child = "GRANGE_TEST_CHILD"
	if os.Getenv(child) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	signal.Ignore(unix.SIGXFSZ)
	for back := 0; ; back++ {
		root := extract(t, map[string]string{"proc/sys/vm/swappiness": "60\n",
			"etc/sysctl.d/50-site.conf": "vm.swappiness = 60\n"})
		before := look(t, root)
		plan, err := NewPlan(t.Context(), Tree(root), swappiness)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Do(t.Context(), Tree(root), plan, Options{Tell: func(p Progress) {
			if p.Undo || p.N < 2 {
				return
			}
			runs, err := History(root)
			if err != nil {
				t.Fatal(err)
			}
			info, err := root.Stat(journalPath(runs[0].ID))
			if err != nil {
				t.Fatal(err)
			}
			fileLimit(t, uint64(info.Size()+int64(10*back)))
		}})
		fileLimit(t, unix.RLIM_INFINITY)
		if err == nil {
			if back < 5 {
				t.Fatalf("%d bytes are room for the whole journal", 10*back)
			}
			return
		}
		if d := cmp.Diff(before, look(t, root)); d != "" {
			t.Errorf("%d bytes of room: after the undo (-before +after):\n%s", 10*back, d)
		}
		runs, err := History(root)
		if err != nil {
			t.Fatalf("%d bytes of room: %v", 10*back, err)
		}
		if runs[0].Phase.open() {
			if _, err := Undo(t.Context(), Tree(root), "", false, Options{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := doPlan(t, Tree(root), swappiness); err != nil {
			t.Errorf("%d bytes of room: apply anew: %v", 10*back, err)
		}
	}
}

// A disk without room for the journal is told before anything changes, and leaves no run behind.
func TestNoRoomForTheJournal(t *testing.T) {
	m := newMachine(t, map[string]string{"proc/sys/vm/swappiness": "60\n", "var/lib/grange/x": ""})
	dir := filepath.Join(m.root.Name(), "var/lib/grange")
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=755"); err != nil {
		t.Skipf("mount: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	if err := os.WriteFile(filepath.Join(dir, "image"), make([]byte, 40<<10), 0o644); err != nil {
		t.Fatal(err)
	}
	err := doPlan(t, m, swappiness)
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v, want no space", err)
	}
	if text, _ := m.root.ReadFile("proc/sys/vm/swappiness"); string(text) != "60\n" {
		t.Errorf("swappiness is %q", text)
	}
	if runs, err := History(m.root); len(runs) != 0 || err != nil {
		t.Errorf("history has %d runs, %v", len(runs), err)
	}
}

// A file may be a link to one that something else manages. What it leads to is edited; the link stays.
func TestLinkedConfiguration(t *testing.T) {
	findings := []tuning.Finding{{Rule: "boot", Where: "host",
		Changes: []tuning.Change{{Kind: tuning.SetBoot, Name: "iommu", Value: "pt", Reboot: true}}}}
	root := extract(t, map[string]string{"proc/1/comm": "init\n", grubFile: "-> ../site/grub",
		"etc/site/grub": "GRUB_CMDLINE_LINUX=\"quiet\"\n"})
	before := look(t, root)
	if err := doPlan(t, Tree(root), findings); err != nil {
		t.Fatal(err)
	}
	if text, _ := root.ReadFile("etc/site/grub"); string(text) != "GRUB_CMDLINE_LINUX=\"quiet iommu=pt\"\n" {
		t.Errorf("grub reads %q", text)
	}
	if _, err := Undo(t.Context(), Tree(root), "", false, Options{}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, look(t, root)); d != "" {
		t.Errorf("after undo (-before +after):\n%s", d)
	}
	// Elsewhere no undo would touch it, so no plan does.
	root = extract(t, map[string]string{"proc/1/comm": "init\n", grubFile: "-> ../../srv/site/grub",
		"srv/site/grub": "GRUB_CMDLINE_LINUX=\"quiet\"\n"})
	_, err := NewPlan(t.Context(), Tree(root), findings)
	wantCode(t, err, CodeUnsafePath)
	if !strings.Contains(err.Error(), "/etc/default/grub links to /srv/site/grub") {
		t.Error(err)
	}
}

// What no undo would take back is refused before it is in a journal, which nobody could read then.
func TestNoJournalOfAPlanThatItWouldNotTakeBack(t *testing.T) {
	root := extract(t, map[string]string{"proc/1/comm": "init\n"})
	plan := Plan{Steps: []Step{{Kind: StepFile, Path: "proc/1/comm", New: State{File: &File{Mode: 0o644}}}}}
	plan.Steps[0].Old.File, _ = readFile(root, "proc/1/comm")
	_, err := Do(t.Context(), Tree(root), plan, Options{})
	wantCode(t, err, farm.CodeBadJournal)
	if runs, err := History(root); len(runs) != 0 || err != nil {
		t.Errorf("history has %d runs, %v", len(runs), err)
	}
}

// A file of a .d directory that links to /dev/null is masked: it sets nothing.
func TestMaskedFiles(t *testing.T) {
	m := newMachine(t, map[string]string{"proc/sys/vm/swappiness": "60\n", "dev/x": "",
		"etc/sysctl.d/50-site.conf": "-> /dev/null", "etc/sysctl.conf": "-> /dev/null",
		grubFile: "GRUB_CMDLINE_LINUX=quiet\n", grubDir + "/50-cloud.cfg": "-> /dev/null",
		"sys/module/kvm_intel/initstate": "live\n", "usr/lib/modprobe.d/kvm.conf": "options kvm_intel ept=0\n",
		"etc/modprobe.d/kvm.conf": "-> ../../dev/null"})
	if err := unix.Mknod(filepath.Join(m.root.Name(), "dev/null"), unix.S_IFCHR|0o666,
		int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	if err := doPlan(t, m, slices.Concat(eptOn, swappiness, iommu)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etc/sysctl.d/50-site.conf", "etc/modprobe.d/kvm.conf"} {
		if info, err := m.root.Lstat(name); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is no link any more: %v", name, err)
		}
	}
	// Our own file, masked, would keep nothing.
	m = newMachine(t, map[string]string{"proc/sys/vm/swappiness": "60\n", sysctlFile: "-> /dev/null"})
	_, err := NewPlan(t.Context(), m, swappiness)
	wantCode(t, err, CodeUnsafePath)
}

// The last step of an apply that was killed may be half made, but a file is whole at any time: what somebody made of it
// is theirs.
func TestUndoKeepsAnEditOfTheLastFile(t *testing.T) {
	root := extract(t, map[string]string{"proc/sys/vm/swappiness": "60\n"})
	if err := doPlan(t, Tree(root), swappiness); err != nil {
		t.Fatal(err)
	}
	runs, err := History(root)
	if err != nil {
		t.Fatal(err)
	}
	text, err := root.ReadFile(journalPath(runs[0].ID))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	// without "applied"
	if err := root.WriteFile(journalPath(runs[0].ID), []byte(strings.Join(lines[:len(lines)-2], "")),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := root.WriteFile(sysctlFile, []byte("# mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = Undo(t.Context(), Tree(root), "", false, Options{})
	wantCode(t, err, CodeDrifted)
	if text, _ := root.ReadFile(sysctlFile); string(text) != "# mine\n" {
		t.Errorf("%s reads %q", sysctlFile, text)
	}
}

// What has begun ends in order: a program that ctrl-C cut short would leave a module out, or a menu of the boot loader
// half made.
func TestProgramsOutliveCtrlC(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := runProgram(ctx, "true"); err != nil {
		t.Error(err)
	}
}

// Anybody may start a QEMU and name it so that the terminal of whoever reads of it does as they like.
func TestNamesOfVMsArePrinted(t *testing.T) {
	root := extract(t, map[string]string{"proc/7/comm": "qemu-kvm\n",
		"proc/7/cmdline": "qemu-kvm\x00-name\x00guest=a\x1b[2J\u202eb,debug-threads=on\x00"})
	vms, err := RunningVMs(root)
	if err != nil || len(vms) != 1 {
		t.Fatal(vms, err)
	}
	if got := vms[0].Name; got != "a?[2J?b" {
		t.Errorf("the name is %q", got)
	}
}

var iommu = []tuning.Finding{{Rule: "iommu", Where: "host",
	Changes: []tuning.Change{{Kind: tuning.SetBoot, Name: "iommu", Value: "pt", Reboot: true}}}}

// Without the boot loader's program a step for it would fail, and so would every undo: nothing could be applied ever
// again.
func TestNoProgramForTheBootLoader(t *testing.T) {
	m := newMachine(t, map[string]string{grubFile: "GRUB_CMDLINE_LINUX=\"quiet\"\n"})
	m.lacks = []string{"update-grub", "grub2-mkconfig", "grub-mkconfig"}
	plan, err := NewPlan(t.Context(), m, iommu)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Steps) != 1 || len(plan.Wants[0].Manual) != 1 ||
		!strings.Contains(plan.Wants[0].Manual[0], "update-grub") {
		t.Errorf("want one step, and the boot loader by hand:\n%s", plan.Text(nil, 0))
	}
	if _, err := Do(t.Context(), m, plan, Options{}); err != nil {
		t.Error(err)
	}
}

// Where the firmware is EFI, Red Hat's GRUB reads a menu that a link in /etc leads to, and not always the one in
// /boot/grub2.
func TestBootLoaderOfEFI(t *testing.T) {
	for _, c := range []struct{ files, want string }{
		{"", "/boot/grub2/grub.cfg"},
		{"sys/firmware/efi/x etc/grub2-efi.cfg", "/boot/efi/EFI/centos/grub.cfg"},
		{"etc/grub2-efi.cfg", "/boot/grub2/grub.cfg"}, // both are installed, and it was booted by a BIOS
	} {
		files := map[string]string{grubFile: "GRUB_CMDLINE_LINUX=\"quiet\"\n"}
		for _, name := range strings.Fields(c.files) {
			files[name] = "-> ../boot/efi/EFI/centos/grub.cfg"
		}
		m := newMachine(t, files)
		m.lacks = []string{"update-grub"}
		if err := doPlan(t, m, iommu); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(m.calls, ";"); got != "grub2-mkconfig -o "+c.want {
			t.Errorf("%s: %s", c.files, got)
		}
	}
}

// KSM merges empty pages with the kernel's own zero page and counts them apart; taken apart, they take memory, too.
func TestEmptyPagesTakeMemory(t *testing.T) {
	system := Tree(extract(t, map[string]string{ksmRun: "1\n", ksmDir + "/pages_sharing": "1000\n",
		ksmDir + "/ksm_zero_pages": "500\n"}))
	plan, err := NewPlan(t.Context(), system,
		[]tuning.Finding{{Rule: "ksm", Where: "host", Changes: []tuning.Change{{Kind: tuning.Unmerge}}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := plan.Needs(system); got != 1500*pageSize {
		t.Errorf("it needs %v", got)
	}
}

// TestForget: only what was taken back is forgotten.
func TestForget(t *testing.T) {
	root := extract(t, map[string]string{"proc/sys/vm/swappiness": "60\n"})
	if err := doPlan(t, Tree(root), swappiness); err != nil {
		t.Fatal(err)
	}
	runs, err := History(root)
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	wantCode(t, Forget(Tree(root), runs[0].ID), farm.CodeUnfinished)
	if _, err := Undo(t.Context(), Tree(root), runs[0].ID, false, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := Forget(Tree(root), runs[0].ID); err != nil {
		t.Fatal(err)
	}
	if runs, err = History(root); err != nil || len(runs) != 0 {
		t.Error(runs, err)
	}
}
