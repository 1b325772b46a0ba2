package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// machine is a live host on a tree: its programs are played by functions that do to the tree what the real ones do.
type machine struct {
	*live
	t        *testing.T
	calls    []string
	defaults map[string]string // parameters of a module that is loaded without options
	services map[string]*Service
	broken   string // a program's call that fails
	lacks    []string
}

func newMachine(t *testing.T, files map[string]string) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a live host is changed by root only")
	}
	m := &machine{t: t, defaults: map[string]string{"ept": "Y", "nested": "N"}, services: map[string]*Service{}}
	m.live = &live{extract(t, files), m.play, func(program string) bool { return !slices.Contains(m.lacks, program) }}
	return m
}

func (m *machine) play(_ context.Context, program string, args ...string) (string, error) {
	call := program + " " + strings.Join(args, " ")
	m.calls = append(m.calls, call)
	if call == m.broken {
		return "", errors.New(call + " does not work")
	}
	switch program {
	case "modprobe":
		return "", m.modprobe(args)
	case "systemctl":
		return m.systemctl(args)
	}
	return "", nil
}

// modprobe loads and unloads kvm_intel and kvm, which it needs.
func (m *machine) modprobe(args []string) error {
	if args[0] == "-r" {
		if m.exists("sys/module/kvm/holders/kvm_intel") && args[2] == "kvm" {
			return errors.New("modprobe: FATAL: Module kvm is in use")
		}
		return errors.Join(m.root.RemoveAll("sys/module/kvm_intel"), m.root.RemoveAll("sys/module/kvm"))
	}
	if !m.exists("sys/module/kvm/parameters") {
		m.write("sys/module/kvm/parameters/halt_poll_ns", "200000\n", 0o644)
		m.write("sys/module/kvm/initstate", "live\n", 0o444)
	}
	if args[1] != "kvm_intel" {
		return nil
	}
	m.write("sys/module/kvm/holders/kvm_intel", "", 0o644)
	m.write("sys/module/kvm_intel/initstate", "live\n", 0o444)
	params := map[string]string{}
	for name, value := range m.defaults {
		params[name] = value
	}
	conf, _ := m.root.ReadFile("etc/modprobe.d/grange-tuning.conf")
	old, _ := m.root.ReadFile("etc/modprobe.d/kvm.conf")
	words := strings.Fields(string(old) + " " + string(conf))
	for _, word := range append(words, args[2:]...) {
		if name, value, ok := strings.Cut(word, "="); ok {
			params[name] = map[string]string{"0": "N", "1": "Y"}[value]
			if params[name] == "" {
				params[name] = value
			}
		}
	}
	for name, value := range params {
		m.write("sys/module/kvm_intel/parameters/"+name, value+"\n", 0o444)
	}
	return nil
}

func (m *machine) systemctl(args []string) (string, error) {
	s := m.services[strings.TrimSuffix(args[len(args)-1], ".service")]
	switch args[0] {
	case "show":
		if s == nil {
			return "LoadState=not-found\nActiveState=inactive\nUnitFileState=\n", nil
		}
		return fmt.Sprintf("LoadState=loaded\nActiveState=%s\nUnitFileState=%s\n",
			map[bool]string{true: "active", false: "inactive"}[s.Active], s.Enabled), nil
	case "stop", "start":
		s.Active = args[0] == "start"
	case "enable", "disable":
		s.Enabled = args[0] + "d"
	}
	return "", nil
}

func (m *machine) exists(name string) bool {
	_, err := m.root.Lstat(name)
	return err == nil
}

func (m *machine) write(name, text string, mode os.FileMode) {
	m.t.Helper()
	if err := m.root.MkdirAll(name[:strings.LastIndex(name, "/")], 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := m.root.WriteFile(name, []byte(text), mode); err != nil {
		m.t.Fatal(err)
	}
}

// withKVM is a machine whose kvm_intel was loaded with ept off.
func withKVM(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t, map[string]string{"proc/1/comm": "systemd\n", "run/systemd/system/x": "",
		"etc/modprobe.d/kvm.conf": "options kvm_intel ept=0\n"})
	if err := m.modprobe([]string{"--", "kvm_intel"}); err != nil {
		t.Fatal(err)
	}
	// set by somebody at run time: a new load loses it
	m.write("sys/module/kvm/parameters/halt_poll_ns", "123456\n", 0o644)
	return m
}

var eptOn = []tuning.Finding{{Rule: "ept-off", Where: "host",
	Changes: []tuning.Change{{Kind: tuning.SetModule, Unit: "kvm_intel", Name: "ept", Value: "1", NoVMs: true}}}}

// doPlan plans and applies.
func doPlan(t *testing.T, system System, findings []tuning.Finding) error {
	t.Helper()
	plan, err := NewPlan(t.Context(), system, findings)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Do(t.Context(), system, plan, Options{})
	return err
}

func wantCode(t *testing.T, err error, code farm.Code) {
	t.Helper()
	if own := new(farm.Error); !errors.As(err, &own) || own.Code != code {
		t.Fatalf("got %v, want the code %s", err, code)
	}
}

func TestModuleIsLoadedAnew(t *testing.T) {
	m := withKVM(t)
	before := look(t, m.root)
	if err := doPlan(t, m, eptOn); err != nil {
		t.Fatal(err)
	}
	params, _ := moduleParams(m.root, "kvm_intel")
	if d := cmp.Diff(map[string]string{"ept": "Y", "nested": "N"}, params); d != "" {
		t.Errorf("kvm_intel: %s", d)
	}
	if params, _ := moduleParams(m.root, "kvm"); params["halt_poll_ns"] != "123456" {
		t.Errorf("halt_poll_ns of kvm, which went along, is %s", params["halt_poll_ns"])
	}
	if _, err := Undo(t.Context(), m, "", false, Options{}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, look(t, m.root)); d != "" {
		t.Errorf("after undo (-before +after):\n%s", d)
	}
}

// A file that somebody made while the module was out would keep KVM's device away.
func TestDeviceIsUncovered(t *testing.T) {
	m := withKVM(t)
	m.live.run = func(ctx context.Context, program string, args ...string) (string, error) {
		if program == "modprobe" && args[0] != "-r" && m.exists("dev/kvm") {
			t.Error("a module is loaded while a file is in the place of KVM's device")
		}
		out, err := m.play(ctx, program, args...)
		if len(args) > 0 && args[0] == "-r" {
			m.write("dev/kvm", "", 0o644)
		}
		return out, err
	}
	if err := doPlan(t, m, eptOn); err != nil {
		t.Fatal(err)
	}
	if m.exists("dev/kvm") {
		t.Error("the file is still there")
	}
}

// A kill between unloading and loading leaves no module at all.
func TestUndoLoadsWhatAKillLeftUnloaded(t *testing.T) {
	m := withKVM(t)
	before := look(t, m.root)
	m.live.run = func(ctx context.Context, program string, args ...string) (string, error) {
		out, err := m.play(ctx, program, args...)
		if len(args) > 0 && args[0] == "-r" {
			panic(killed{})
		}
		return out, err
	}
	if survives(func() { doPlan(t, m, eptOn) }) {
		t.Fatal("nobody unloaded a module")
	}
	if m.exists("sys/module/kvm_intel") {
		t.Fatal("the module is still there")
	}
	m.live.run = m.play
	wantCode(t, doPlan(t, m, eptOn), farm.CodeUnfinished)
	if _, err := Undo(t.Context(), m, "", false, Options{}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, look(t, m.root)); d != "" {
		t.Errorf("after undo (-before +after):\n%s", d)
	}
}

func TestModuleWaitsForVMs(t *testing.T) {
	m := withKVM(t)
	m.write("proc/77/comm", "qemu-system-x86\n", 0o644)
	m.write("proc/77/cmdline", "/usr/bin/qemu-system-x86_64\x00-name\x00guest=web3,debug-threads=on\x00", 0o644)
	before := look(t, m.root)
	err := doPlan(t, m, eptOn)
	wantCode(t, err, farm.CodeVMsRunning)
	if !strings.Contains(err.Error(), "web3 (PID 77)") {
		t.Errorf("the error does not name the VM: %v", err)
	}
	if d := cmp.Diff(before, look(t, m.root)); d != "" {
		t.Errorf("something changed:\n%s", d)
	}
	told := 0
	err = Await(t.Context(), m, func(vms []VM) {
		told++
		if err := m.root.RemoveAll("proc/77"); err != nil {
			t.Error(err)
		}
	})
	if err != nil || told != 1 {
		t.Errorf("Await: %v, told %d times", err, told)
	}
	if err := doPlan(t, m, eptOn); err != nil {
		t.Error(err)
	}
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	m := withKVM(t)
	m.write("proc/77/comm", "qemu-kvm\n", 0o644)
	ctx, cancel := context.WithCancel(t.Context())
	wantCode(t, Await(ctx, m, func([]VM) { cancel() }), farm.CodeVMsRunning)
}

// A VM that starts after the plan was found ready is seen before the module goes.
func TestVMThatStartsMeanwhile(t *testing.T) {
	m := withKVM(t)
	before := look(t, m.root)
	plan, err := NewPlan(t.Context(), m, eptOn)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Do(t.Context(), m, plan, Options{Tell: func(p Progress) {
		if p.Step.Kind == StepModule && !p.Undo {
			m.write("proc/78/comm", "qemu-kvm\n", 0o644)
		}
	}})
	wantCode(t, err, CodeApplyFailed)
	if err := m.root.RemoveAll("proc/78"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, look(t, m.root)); d != "" {
		t.Errorf("after the undo (-before +after):\n%s", d)
	}
}

func TestServices(t *testing.T) {
	m := withKVM(t)
	m.services["ksmtuned"] = &Service{Active: true, Enabled: "enabled"}
	m.services["ksm"] = &Service{Active: true, Enabled: "static"}
	m.write("proc/90/comm", "numad\n", 0o644) // started by hand
	off := func(unit string) tuning.Change {
		return tuning.Change{Kind: tuning.SetService, Unit: unit, Value: "off"}
	}
	findings := []tuning.Finding{{Rule: "daemons", Where: "host",
		Changes: []tuning.Change{off("ksmtuned.service"), off("ksm"), off("numad"), off("nobody")}}}
	plan, err := NewPlan(t.Context(), m, findings)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Steps) != 2 || len(plan.Wants[0].Manual) != 1 || !strings.Contains(plan.Wants[0].Manual[0], "numad") {
		t.Fatalf("want two steps, and numad by hand:\n%s", plan.Text(nil, 0))
	}
	if _, err := Do(t.Context(), m, plan, Options{}); err != nil {
		t.Fatal(err)
	}
	if s := *m.services["ksmtuned"]; s.Active || s.Enabled != "disabled" {
		t.Errorf("ksmtuned is %v after apply", s)
	}
	if _, err := Undo(t.Context(), m, "", false, Options{}); err != nil {
		t.Fatal(err)
	}
	if s, k := *m.services["ksmtuned"], *m.services["ksm"]; !s.Active || s.Enabled != "enabled" || !k.Active ||
		k.Enabled != "static" {
		t.Errorf("ksmtuned is %v and ksm %v after undo", s, k)
	}
}

// A program that fails undoes what was done before it; what cannot be undone is tried again by the next undo.
func TestProgramsThatFail(t *testing.T) {
	m := withKVM(t)
	m.services["numad"] = &Service{Active: true, Enabled: "enabled"}
	before := look(t, m.root)
	findings := append([]tuning.Finding{{Rule: "numad", Where: "host",
		Changes: []tuning.Change{{Kind: tuning.SetService, Unit: "numad", Value: "off"}}}}, eptOn...)
	m.broken = "modprobe -r -- kvm_intel"
	err := doPlan(t, m, findings)
	wantCode(t, err, CodeApplyFailed)
	if s := *m.services["numad"]; !s.Active || s.Enabled != "enabled" {
		t.Errorf("numad is %v after the undo", s)
	}
	if d := cmp.Diff(before, look(t, m.root)); d != "" {
		t.Errorf("after the undo (-before +after):\n%s", d)
	}
	m.broken = ""
	if err := doPlan(t, m, findings); err != nil {
		t.Fatal(err)
	}
	m.broken = "systemctl start -- numad.service"
	_, err = Undo(t.Context(), m, "", false, Options{})
	wantCode(t, err, CodeUndoFailed)
	wantCode(t, doPlan(t, m, findings), farm.CodeUnfinished)
	m.broken = ""
	if _, err := Undo(t.Context(), m, "", false, Options{}); err != nil {
		t.Fatal(err)
	}
	if s := *m.services["numad"]; !s.Active {
		t.Errorf("numad is %v after the second undo", s)
	}
	if d := cmp.Diff(before, look(t, m.root)); d != "" {
		t.Errorf("after the second undo (-before +after):\n%s", d)
	}
}

// A built-in module reads no modprobe.d: its option goes on the kernel's command line.
func TestBuiltInModule(t *testing.T) {
	m := newMachine(t, map[string]string{"sys/module/kvm_amd/parameters/npt": "N\n",
		grubFile: "GRUB_CMDLINE_LINUX=\"quiet\"\n"})
	if err := m.root.Chmod("sys/module/kvm_amd/parameters/npt", 0o444); err != nil {
		t.Fatal(err)
	}
	plan, err := NewPlan(t.Context(), m,
		[]tuning.Finding{{Rule: "npt", Where: "host",
			Changes: []tuning.Change{{Kind: tuning.SetModule, Unit: "kvm_amd", Name: "npt", Value: "1"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if text := plan.Text(nil, 0); !strings.Contains(text, `+GRUB_CMDLINE_LINUX="quiet kvm_amd.npt=1"`) ||
		strings.Contains(text, "modprobe.d") {
		t.Errorf("plan:\n%s", text)
	}
}

// Debian has /etc/default/grub only where somebody configured GRUB: grub-mkconfig reads the files of grub.d without it,
// and makes its menu from them.
func TestGrubWithoutDefaults(t *testing.T) {
	m := newMachine(t, map[string]string{"proc/1/comm": "init\n",
		grubDir + "/50-cloud.cfg": "GRUB_CMDLINE_LINUX=\"quiet psi=0\"\n",
		"boot/grub/grub.cfg":      "linux /vmlinuz quiet psi=0\n"})
	plan, err := NewPlan(t.Context(), m, []tuning.Finding{{Rule: "psi-off", Where: "host",
		Changes: []tuning.Change{{Kind: tuning.SetBoot, Name: "psi", Value: "1", Reboot: true}}}})
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, s := range plan.Steps {
		targets = append(targets, s.Target())
	}
	want := []string{"/" + grubDir + "/50-cloud.cfg", "/" + grubOwn, "boot loader"}
	if d := cmp.Diff(want, targets); d != "" {
		t.Errorf("steps (-want +got):\n%s", d)
	}
	if call := m.bootProgram(); !slices.Equal(call, []string{"update-grub"}) {
		t.Errorf("the menu is made by %v", call)
	}
}

// stingy is a kernel that has fewer huge pages to give.
type stingy struct {
	System
	most string
}

func (s stingy) Write(ctx context.Context, path, value string) error {
	if _, ok := poolOf(path); ok && value == "8" {
		value = s.most
	}
	return s.System.Write(ctx, path, value)
}

func TestFewPages(t *testing.T) {
	const node = "sys/devices/system/node/node%d/hugepages/hugepages-1048576kB/nr_hugepages"
	files := map[string]string{fmt.Sprintf(node, 0): "0\n", fmt.Sprintf(node, 1): "0\n"}
	system := stingy{Tree(extract(t, files)), "7"}
	before := look(t, system.Root())
	err := doPlan(t, system, []tuning.Finding{{Rule: "pages", Where: "host", Changes: []tuning.Change{
		{Kind: tuning.SetValue, Path: fmt.Sprintf(node, 0), Value: "6"},
		{Kind: tuning.SetValue, Path: fmt.Sprintf(node, 1), Value: "8"}}}})
	wantCode(t, err, CodeApplyFailed)
	wantCode(t, errors.Unwrap(err), CodeFewPages)
	if !strings.Contains(err.Error(), "node 1 gave 7 of 8 huge pages of 1G") {
		t.Errorf("the error does not say how many: %v", err)
	}
	if d := cmp.Diff(before, look(t, system.Root())); d != "" {
		t.Errorf("after the undo (-before +after):\n%s", d)
	}
}

// shrinking is a host whose memory runs short while KSM's pages are taken apart.
type shrinking struct{ *machine }

func (s shrinking) Unmerge(ctx context.Context) error {
	s.write(meminfo, "MemTotal: 66000000 kB\nMemAvailable: 100000 kB\n", 0o644)
	<-ctx.Done() // as the real one, it ends when it is stopped
	s.write(ksmRun, "0", 0o644)
	return context.Cause(ctx)
}

func TestUnmergeStopsWhenMemoryRunsShort(t *testing.T) {
	m := newMachine(t, map[string]string{meminfo: "MemTotal: 66000000 kB\nMemAvailable: 30000000 kB\n", ksmRun: "1\n",
		ksmDir + "/pages_sharing": "100000\n"})
	err := doPlan(t, shrinking{m}, []tuning.Finding{{Rule: "ksm", Where: "host",
		Changes: []tuning.Change{{Kind: tuning.Unmerge}}}})
	wantCode(t, err, CodeApplyFailed)
	if text := err.Error(); !strings.Contains(text, "memory ran short") ||
		!strings.Contains(text, "100000 pages still shared") {
		t.Error(text)
	}
	if run, _ := m.root.ReadFile(ksmRun); strings.TrimSpace(string(run)) != "1" {
		t.Errorf("KSM is at %q after the undo: what is merged would be copied without anybody looking", run)
	}
}

func TestTwoAppliesAtATime(t *testing.T) {
	system := Tree(extract(t, map[string]string{"proc/sys/vm/swappiness": "60\n"}))
	unlock, err := lock(system.Root())
	if err != nil {
		t.Fatal(err)
	}
	findings := []tuning.Finding{{Rule: "swap", Where: "host",
		Changes: []tuning.Change{{Kind: tuning.SetValue, Path: "proc/sys/vm/swappiness", Value: "1"}}}}
	wantCode(t, doPlan(t, system, findings), CodeTuningBusy)
	_, err = Undo(t.Context(), system, "", false, Options{})
	wantCode(t, err, CodeTuningBusy)
	unlock()
	if err := doPlan(t, system, findings); err != nil {
		t.Error(err)
	}
}

func TestStalePlanAndDrift(t *testing.T) {
	const path = "proc/sys/vm/swappiness"
	root := extract(t, map[string]string{path: "60\n"})
	system := Tree(root)
	plan, err := NewPlan(t.Context(), system,
		[]tuning.Finding{{Rule: "swap", Where: "host",
			Changes: []tuning.Change{{Kind: tuning.SetValue, Path: path, Value: "1"}}}})
	if err != nil {
		t.Fatal(err)
	}
	set := func(text string) {
		t.Helper()
		if err := root.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	set("30\n")
	_, err = Do(t.Context(), system, plan, Options{})
	wantCode(t, err, CodeStalePlan)
	set("60\n")
	if _, err := Do(t.Context(), system, plan, Options{}); err != nil {
		t.Fatal(err)
	}
	set("30\n")
	drifted, err := Drift(t.Context(), system)
	if err != nil || len(drifted) != 1 || drifted[0].Step.Path != path || drifted[0].Now.Text != "30" {
		t.Errorf("drift: %v, %v", drifted, err)
	}
	_, err = Undo(t.Context(), system, "", false, Options{})
	wantCode(t, err, CodeDrifted)
	if now, _ := root.ReadFile(path); string(now) != "30\n" {
		t.Errorf("%s is %q after an undo that was refused", path, now)
	}
	if _, err := Undo(t.Context(), system, "", true, Options{}); err != nil {
		t.Fatal(err)
	}
	if now, _ := root.ReadFile(path); string(now) != "60\n" {
		t.Errorf("%s is %q after undo --force", path, now)
	}
	_, err = Undo(t.Context(), system, "", false, Options{})
	wantCode(t, err, CodeNoApply)
}

func TestInterrupted(t *testing.T) {
	root := extract(t, map[string]string{"proc/sys/vm/swappiness": "60\n", "proc/sys/vm/zone_reclaim_mode": "1\n"})
	system, before := Tree(root), look(t, root)
	plan, err := NewPlan(t.Context(), system, []tuning.Finding{{Rule: "two", Where: "host", Changes: []tuning.Change{
		{Kind: tuning.SetValue, Path: "proc/sys/vm/swappiness", Value: "1"},
		{Kind: tuning.SetValue, Path: "proc/sys/vm/zone_reclaim_mode", Value: "0"}}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	run, err := Do(ctx, system, plan, Options{Tell: func(p Progress) {
		if p.N == 2 {
			cancel()
		}
	}})
	wantCode(t, err, CodeApplyFailed)
	if run.Phase != Undone {
		t.Errorf("the run is %s, want undone", run.Phase)
	}
	if d := cmp.Diff(before, look(t, root)); d != "" {
		t.Errorf("after the undo (-before +after):\n%s", d)
	}
}

// Journals of a foreign tree are not trusted.
func TestHostileJournals(t *testing.T) {
	const begin = `{"version":1,"at":"2026-09-21T10:00:00Z","who":{},"phase":"applied","plan":`
	for name, text := range map[string]string{
		"no plan":           `{"phase":"applied"}` + "\n",
		"not JSON":          "hello\n",
		"a path outside":    begin + `{"Steps":[{"Kind":"file","Path":"../../etc/passwd"}]}}` + "\n",
		"another directory": begin + `{"Steps":[{"Kind":"file","Path":"root/.ssh/authorized_keys"}]}}` + "\n",
		"no value of /sys":  begin + `{"Steps":[{"Kind":"value","Path":"etc/passwd"}]}}` + "\n",
		"an odd service": begin +
			`{"Steps":[{"Kind":"service","Unit":"--now","Old":{"Service":{}},"New":{"Service":{}}}]}}` + "\n",
		"an unknown kind": begin + `{"Steps":[{"Kind":"program"}]}}` + "\n",
		"a step too many": begin + `{"Steps":[]}}` + "\n" + `{"begin":{"Step":0}}` + "\n",
		"a later version": `{"version":2,"at":"2026-09-21T10:00:00Z","who":{},"plan":{"Steps":[]}}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			system := Tree(extract(t, map[string]string{journalPath("20260921T100000Z"): text}))
			_, err := Undo(t.Context(), system, "", true, Options{})
			wantCode(t, err, farm.CodeBadJournal)
		})
	}
}
