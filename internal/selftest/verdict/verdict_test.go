package verdict_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/selftest/verdict"
	"github.com/grange-project/grange/internal/topology"
)

// sound is a machine of which nothing is wrong.
func sound() verdict.Machine {
	return verdict.Machine{
		Shape: verdict.Shape{Name: "1 vCPU", CPUs: 1, Memory: 256 * farm.MiB, Cells: 1}, Accelerator: "kvm",
		Proof:  "proven",
		KVM:    verdict.KVMState{Known: true, VMs: 1, VCPUs: 1, GuestTicks: 40},
		Guest:  &verdict.Guest{},
		Label:  verdict.Label{Module: "apparmor", Profile: "libvirt-UUID", Enforce: true, OwnUser: true},
		Memory: verdict.MemoryUse{Known: true, Overhead: 50 * farm.MiB, Need: 81 * farm.MiB},
		Plan:   farm.Plan{Cells: []farm.GuestCell{{Memory: 256 * farm.MiB}}},
	}
}

func with(change func(*verdict.Machine)) []verdict.Machine {
	m := sound()
	change(&m)
	return []verdict.Machine{m}
}

// check holds a finding to a verdict and to words of its reason, and to say what to do where it is bad.
func check(t *testing.T, name string, f verdict.Finding, want verdict.Verdict, says string) {
	t.Helper()
	if f.Verdict != want || !strings.Contains(f.Reason, says) || f.Reason == "" {
		t.Errorf("%s: %s: %q, want %s with %q", name, f.Verdict, f.Reason, want, says)
	}
	if (f.Verdict == verdict.Bad || f.Verdict == verdict.Warning) && f.Remedy == "" {
		t.Errorf("%s: no remedy", name)
	}
}

func TestKVM(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*verdict.Machine)
		want   verdict.Verdict
		says   string
	}{
		"sound":          {func(*verdict.Machine) {}, verdict.Good, "VM of KVM with 1 vCPU"},
		"nested":         {func(m *verdict.Machine) { m.KVM.Nested = true }, verdict.Good, "virtual machine itself"},
		"emulated":       {func(m *verdict.Machine) { m.KVM = verdict.KVMState{Known: true} }, verdict.Bad, "emulated"},
		"the agent lies": {func(m *verdict.Machine) { m.KVM.VMs = 0 }, verdict.Bad, "emulated"},
		"fewer vCPUs":    {func(m *verdict.Machine) { m.Shape.CPUs = 2 }, verdict.Bad, "1 vCPU of a VM that has 2"},
		"never entered":  {func(m *verdict.Machine) { m.KVM.GuestTicks = 0 }, verdict.Warning, "no CPU time"},
		"shadow paging":  {func(m *verdict.Machine) { m.KVM.Paging = "kvm_amd.npt" }, verdict.Bad, "kvm_amd.npt"},
		"hidden":         {func(m *verdict.Machine) { m.KVM = verdict.KVMState{} }, verdict.Warning, "does not tell"},
		"no VM":          {func(m *verdict.Machine) { m.Failed = "guest-silent" }, verdict.Bad, "guest-silent"},
		"no room":        {func(m *verdict.Machine) { m.Refused = true }, verdict.NotApplicable, "no room"},
	} {
		check(t, name, verdict.JudgeKVM(with(c.change)), c.want, c.says)
	}
}

func TestConfinement(t *testing.T) {
	for name, c := range map[string]struct {
		module, label string
		enforcing     bool
		more          func(*verdict.Label)
		want          verdict.Verdict
		says          string
	}{
		"AppArmor": {"apparmor", "libvirt-12345678-1234-1234-1234-123456789abc (enforce)\n", true, nil, verdict.Good,
			"profile libvirt-UUID"},
		"our profile": {"apparmor", "grange-qemu (enforce)", true, nil, verdict.Good, "grange-qemu"},
		"complaining": {"apparmor", "grange-qemu (complain)", true, nil, verdict.Warning, "lets it pass"},
		"unconfined":  {"apparmor", "unconfined\n", true, nil, verdict.Bad, "not confined"},
		"SELinux":     {"selinux", "system_u:system_r:svirt_t:s0:c12,c34\x00", true, nil, verdict.Good, "svirt_t"},
		"permissive":  {"selinux", "system_u:system_r:svirt_t:s0:c12,c34", false, nil, verdict.Warning, "lets it pass"},
		"virtd":       {"selinux", "system_u:system_r:virtd_t:s0", true, nil, verdict.Bad, "not confined"},
		"neither":     {"", "", false, nil, verdict.Warning, "no security module"},
		"root":        {"apparmor", "x (enforce)", true, func(l *verdict.Label) { l.Root = true }, verdict.Bad, "root"},
		"one user": {"apparmor", "x (enforce)", true, func(l *verdict.Label) { l.OwnUser = false }, verdict.Warning,
			"user of all VMs"},
	} {
		l := verdict.ParseLabel(c.module, c.label, c.enforcing)
		if l.OwnUser = true; c.more != nil {
			c.more(&l)
		}
		check(t, name, verdict.JudgeConfinement(with(func(m *verdict.Machine) { m.Label = l })), c.want, c.says)
	}
}

func TestShapesPinsTopology(t *testing.T) {
	used, small, failed := sound(), sound(), sound()
	used.Shape = verdict.Shape{Name: "one node", InUse: "its CPUs or memory are in use"}
	small.Shape = verdict.Shape{Name: "2 nodes", Missing: "the host has not the memory for it"}
	failed.Shape.Name, failed.Failed = "one core", "bad-pins"
	check(t, "all", verdict.JudgeShapes([]verdict.Machine{sound(), used, small}), verdict.Good, "one node: not tried")
	check(t, "one failed", verdict.JudgeShapes([]verdict.Machine{sound(), failed, used}), verdict.Bad,
		"one core: failed [bad-pins]")
	check(t, "none tried", verdict.JudgeShapes([]verdict.Machine{used, small}), verdict.NotApplicable, "in use")
	check(t, "pins of what ran", verdict.JudgePins([]verdict.Machine{sound(), failed}), verdict.Good, "proven")
	check(t, "no pins", verdict.JudgePins([]verdict.Machine{failed}), verdict.Bad, "bad-pins")
	check(t, "stray", verdict.JudgePins(with(func(m *verdict.Machine) {
		m.Proof, m.Problems = "problem",
			[]string{"stray-vcpu"}
	})), verdict.Bad, "problem (stray-vcpu)")
	check(t, "not found", verdict.JudgePins(with(func(m *verdict.Machine) { m.Proof = "" })), verdict.Bad, "not found")
	check(t, "as planned", verdict.JudgeTopology(with(func(*verdict.Machine) {})), verdict.Good, "as planned")
	check(t, "no threads", verdict.JudgeTopology(
		with(func(m *verdict.Machine) { m.Guest.Differs = []string{"1 thread a core, not 2"} })), verdict.Bad,
		"1 thread a core")
	check(t, "old guest", verdict.JudgeTopology(with(func(m *verdict.Machine) { m.Guest = nil })), verdict.Warning,
		"not reported")
}

func TestPages(t *testing.T) {
	big := func(change func(*verdict.Machine)) verdict.Machine {
		m := sound()
		m.Shape.PageSize, m.Plan.Cells[0].PageSize = 2*farm.MiB, 2*farm.MiB
		change(&m)
		return m
	}
	check(t, "sound", verdict.JudgePages(big(func(*verdict.Machine) {})), verdict.Good, "pages of 2M")
	check(t, "no pool", verdict.JudgePages(big(func(m *verdict.Machine) { m.Shape.Missing = "no node has a pool" })),
		verdict.NotApplicable, "pool")
	check(t, "in use", verdict.JudgePages(big(func(m *verdict.Machine) { m.Refused = true })),
		verdict.NotApplicable, "in use")
	check(t, "small pages", verdict.JudgePages(big(func(m *verdict.Machine) { m.Plan.Cells[0].PageSize = 0 })),
		verdict.Bad, "other pages")
	check(t, "refused by QEMU", verdict.JudgePages(big(func(m *verdict.Machine) { m.Failed = "vm-lost" })),
		verdict.Bad, "vm-lost")
	check(t, "elsewhere", verdict.JudgePages(big(func(m *verdict.Machine) {
		m.Proof, m.Problems = "problem",
			[]string{"remote-memory"}
	})), verdict.Bad, "remote-memory")
}

func TestMemory(t *testing.T) {
	check(t, "sound", verdict.JudgeMemory(with(func(*verdict.Machine) {})), verdict.Good, "50M")
	check(t, "more than planned", verdict.JudgeMemory(
		with(func(m *verdict.Machine) { m.Memory.Overhead = 90 * farm.MiB })), verdict.Bad, "90M")
	check(t, "not known", verdict.JudgeMemory(with(func(m *verdict.Machine) { m.Memory.Known = false })),
		verdict.Warning, "cannot be distinguished")
}

func TestHost(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	check(t, "quick", verdict.JudgeLibvirt(verdict.Daemon{Answers: []time.Duration{8 * s, 20 * ms, 30 * ms}}),
		verdict.Good, "25 ms")
	check(t, "slow", verdict.JudgeLibvirt(verdict.Daemon{Answers: []time.Duration{4 * s, 4 * s}}),
		verdict.Warning, "4000 ms")
	check(t, "deaf", verdict.JudgeLibvirt(verdict.Daemon{Answers: []time.Duration{15 * s}}), verdict.Bad, "15000 ms")
	check(t, "away", verdict.JudgeLibvirt(verdict.Daemon{Away: true}), verdict.Bad, "does not answer")
	check(t, "stuck", verdict.JudgeLibvirt(verdict.Daemon{Answers: []time.Duration{ms, ms}, Stuck: 2}),
		verdict.Warning, "2 VMs")
	check(t, "v2", verdict.JudgeCgroup(verdict.Groups{Version: 2,
		Controllers: []string{"cpuset", "cpu", "memory", "pids"}}), verdict.Good, "version 2")
	check(t, "no cpuset", verdict.JudgeCgroup(verdict.Groups{Version: 2, Controllers: []string{"cpu", "memory"}}),
		verdict.Bad, "without cpuset")
	check(t, "v1", verdict.JudgeCgroup(verdict.Groups{Version: 1}), verdict.Warning, "version 1")
	check(t, "none", verdict.JudgeCgroup(verdict.Groups{}), verdict.Bad, "no control groups")
}

func TestStreamsAndExits(t *testing.T) {
	whole := verdict.Copy{Sent: 100, Received: 100, Same: true, SeenInGuest: true, Apart: true}
	for name, c := range map[string]struct {
		change func(*verdict.Copy)
		want   verdict.Verdict
		says   string
	}{
		"whole":       {func(*verdict.Copy) {}, verdict.Good, "100 bytes"},
		"short":       {func(c *verdict.Copy) { c.Received, c.Same = 99, false }, verdict.Bad, "of 100 bytes 99"},
		"changed":     {func(c *verdict.Copy) { c.Same = false }, verdict.Bad, "other bytes"},
		"lost inside": {func(c *verdict.Copy) { c.SeenInGuest = false }, verdict.Bad, "did not get"},
		"mixed":       {func(c *verdict.Copy) { c.Apart = false }, verdict.Bad, "standard error"},
		"status":      {func(c *verdict.Copy) { c.Status = 1 }, verdict.Bad, "status 1"},
		"not started": {func(c *verdict.Copy) { c.Status, c.Code = 199, "not-started" }, verdict.Bad, "not started"},
		"no room": {func(c *verdict.Copy) { c.Status, c.Code, c.Refused = 199, "no-room", true },
			verdict.NotApplicable, "no room"},
	} {
		copied := whole
		c.change(&copied)
		check(t, name, verdict.JudgeStreams(copied), c.want, c.says)
	}
	ends := func(status int) []verdict.Ending {
		return []verdict.Ending{{How: "exit 1", Want: 1, Job: verdict.Job{Status: 1}},
			{How: "signal 9", Want: 137, Job: verdict.Job{Status: status}}}
	}
	check(t, "right", verdict.JudgeExits(ends(137)), verdict.Good, "signal 9 as 137")
	check(t, "wrong", verdict.JudgeExits(ends(9)), verdict.Bad, "status 9, not 137")
	none := ends(137)
	none[0].Job = verdict.Job{Status: 199, Code: "vm-lost"}
	check(t, "not started", verdict.JudgeExits(none), verdict.Bad, "vm-lost")
}

func TestStart(t *testing.T) {
	rounds := func(ratios ...float64) verdict.Starts {
		s := verdict.Starts{Phases: map[string][]float64{"boot": {900}, "define": {700, 800}, "grant": {1}}}
		for _, r := range ratios {
			s.Rounds = append(s.Rounds, verdict.Round{Raw: time.Second, Ours: time.Duration(r * float64(time.Second))})
		}
		return s
	}
	check(t, "fast", verdict.JudgeStart(rounds(1.1, 1.2, 9)), verdict.Good, "1.20 times")
	check(t, "limit", verdict.JudgeStart(rounds(1.5, 1.5)), verdict.Good, "1.50 times")
	slow := verdict.JudgeStart(rounds(1.6, 1.6))
	check(t, "slow", slow, verdict.Warning, "1.60 times")
	if !strings.Contains(slow.Remedy, `"define", 750 ms`) {
		t.Errorf("the remedy does not name the longest phase: %s", slow.Remedy)
	}
	if f := verdict.Failed("no VM", verdict.Late); strings.Contains(f.Remedy, "errors.md") {
		t.Errorf("docs/errors.md has no such code: %s", f.Remedy)
	}
	check(t, "very slow", verdict.JudgeStart(rounds(3.6)), verdict.Bad, "3.60 times")
	check(t, "disk", verdict.JudgeStart(verdict.Starts{NoRaw: "the image is a disk"}), verdict.NotApplicable, "disk")
	check(t, "busy", verdict.JudgeStart(verdict.Starts{Busy: true}), verdict.NotApplicable, "no CPU")
	check(t, "failed", verdict.JudgeStart(verdict.Starts{Code: "vm-lost"}), verdict.Bad, "vm-lost")
	for _, c := range []struct {
		done int
		took time.Duration
		more bool
	}{{0, time.Hour, true}, {1, time.Hour, true}, {2, time.Hour, false}, {2, time.Second, true}, {8, 0, false}} {
		if got := verdict.MoreRounds(c.done, c.took); got != c.more {
			t.Errorf("after %d rounds in %v: %v", c.done, c.took, got)
		}
	}
}

func TestCPU(t *testing.T) {
	loads := func(ms ...time.Duration) verdict.Loads {
		l := verdict.Loads{Host: map[string][]time.Duration{"compute": {110, 100}, "memory": {100}},
			Guest: map[string][]time.Duration{"memory": {130}}}
		l.Guest["compute"] = ms
		return l
	}
	check(t, "as fast", verdict.JudgeCPU(loads(500, 104, 300)), verdict.Good, "1.04 times")
	check(t, "slower", verdict.JudgeCPU(loads(120)), verdict.Warning, "1.20 times")
	nested := loads(120)
	nested.Nested = true
	check(t, "slower in a VM", verdict.JudgeCPU(nested), verdict.Good, "virtual machine itself")
	check(t, "slow", verdict.JudgeCPU(loads(500)), verdict.Bad, "5.00 times")
	emulated := loads(900)
	emulated.Emulated = true
	if f := verdict.JudgeCPU(emulated); f.Verdict != verdict.Bad || !strings.Contains(f.Remedy, "kvm") {
		t.Errorf("%+v", f)
	}
	check(t, "nothing", verdict.JudgeCPU(loads()), verdict.Bad, "not measured")
}

func TestLeaks(t *testing.T) {
	sound := verdict.Residue{Jobs: 50, AtOnce: 4}
	check(t, "nothing", verdict.JudgeLeaks(sound), verdict.Good, "after 50 jobs, 4 at once")
	left := sound
	left.Left = map[string][]string{"files of libvirt": {"/etc/libvirt/a", "/etc/libvirt/b"}, "processes": {"x"}}
	f := verdict.JudgeLeaks(left)
	check(t, "files", f, verdict.Bad, "files of libvirt: 2; processes: 1")
	if strings.Contains(f.Reason, "/etc") || len(f.Details) != 3 || f.Figures["left"] != 3 {
		t.Errorf("%+v", f)
	}
	failed := sound
	failed.Failed, failed.Code = 3, "vm-lost"
	check(t, "failed", verdict.JudgeLeaks(failed), verdict.Bad, "3 of 50 jobs failed [vm-lost]")
	full := sound
	full.Failed, full.Code = 50, "no-room"
	check(t, "full", verdict.JudgeLeaks(full), verdict.NotApplicable, "no room")
}

func TestLeft(t *testing.T) {
	at := func(files int, items ...string) verdict.Snapshot {
		s := verdict.Snapshot{Items: map[string]map[string]bool{"files": {}},
			Amounts: map[string]int{verdict.Descriptors: files, "huge pages in use": files}}
		for _, i := range items {
			s.Items["files"][i] = true
		}
		return s
	}
	before := at(10, "/run/old", "/run/gone")
	if left := verdict.Left(before, at(10, "/run/old"), nil, true, 50); len(left) != 0 {
		t.Errorf("what goes is left: %v", left)
	}
	left := verdict.Left(before, at(10, "/run/old", "/run/new", "/run/grange-theirs.sock"),
		[]string{"grange-theirs"}, true, 50)
	if !slices.Equal(left["files"], []string{"/run/new"}) || len(left) != 1 {
		t.Errorf("%v", left)
	}
	if left := verdict.Left(before, at(60), nil, true, 50); len(left) != 2 {
		t.Errorf("50 more open files and huge pages: %v", left)
	}
	if left := verdict.Left(before, at(15), nil, true, 4); len(left) != 1 || left[verdict.Descriptors] != nil {
		t.Errorf("five more open files after four jobs: %v", left)
	}
	if left := verdict.Left(before, at(60), nil, false, 50); len(left) != 0 {
		t.Errorf("amounts while others' VMs come and go: %v", left)
	}
}

func TestShapesOf(t *testing.T) {
	host := topology.Grid{Sockets: 2, CoresPerNode: 4, Threads: 2, NodeMemory: 8 * farm.GiB}.Topology()
	all := func(h farm.Topology) verdict.Room { return verdict.Room{Host: h, Allowed: h.Online, Free: h.Online} }
	reserved := all(host)
	reserved.Allowed = host.Online.Minus(farm.NewCPUSet(0)) // of core 0
	busy := all(host)
	busy.Free = host.Nodes[0].CPUs.Minus(farm.NewCPUSet(1))
	plain := topology.Grid{Sockets: 1, CoresPerNode: 2, NodeMemory: 8 * farm.GiB}.Topology()
	small := topology.Grid{Sockets: 2, CoresPerNode: 4, Threads: 2, NodeMemory: 700 * farm.MiB}.Topology()
	for name, c := range map[string]struct {
		room verdict.Room
		want []string
	}{
		"all free": {all(host),
			[]string{"1 vCPU", "one core, 2 threads", "one node, 8 vCPUs", "2 nodes, 16 vCPUs"}},
		"reserved": {reserved, []string{"1 vCPU", "one core, 2 threads", "one node, 8 vCPUs",
			"2 nodes, 12 vCPUs"}},
		"busy": {busy, []string{"1 vCPU", "one core, 2 threads", "one node, 8 vCPUs in use",
			"2 nodes, 16 vCPUs in use"}},
		"no threads": {all(plain), []string{"1 vCPU", "one node, 2 vCPUs"}},
		"little memory": {all(small), []string{"1 vCPU", "one core, 2 threads", "one node, 8 vCPUs missing",
			"2 nodes, 16 vCPUs missing"}},
	} {
		var got []string
		for _, s := range verdict.ShapesOf(c.room) {
			name := s.Name
			if s.InUse != "" {
				name += " in use"
			}
			if s.Missing != "" {
				name += " missing"
			}
			got = append(got, name)
			if s.InUse == "" && s.Missing == "" {
				plan(t, c.room, s)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// plan holds a shape to be one that the planner takes.
func plan(t *testing.T, r verdict.Room, s verdict.Shape) {
	t.Helper()
	request := numa.Request{VCPUs: s.CPUs, Memory: s.Memory, Cells: s.Cells, Allowed: r.Allowed.And(r.Free)}
	if s.Whole {
		request.Threads = farm.RequireSiblings
	}
	if _, err := numa.Plan(numa.NewRoom(r.Host, numa.Reserve{}, nil), request); err != nil {
		t.Errorf("%s: %v", s.Name, err)
	}
}

func TestPagesShape(t *testing.T) {
	host := topology.Grid{Sockets: 2, CoresPerNode: 2, NodeMemory: 8 * farm.GiB}.Topology()
	host.Nodes[1].Pages = []farm.HugePages{{Size: 2 * farm.MiB, Total: 200, Free: 128}, {Size: farm.GiB, Total: 1}}
	room := verdict.Room{Host: host, Allowed: host.Online, Free: host.Online}
	if s := verdict.PagesShape(room, 2*farm.MiB); s.Missing+s.InUse != "" || s.Memory != 256*farm.MiB {
		t.Errorf("%+v", s)
	}
	if s := verdict.PagesShape(room, farm.GiB); s.InUse == "" || s.Missing != "" {
		t.Errorf("a pool in use: %+v", s)
	}
	host.Nodes[1].Pages[0].Total = 100
	if s := verdict.PagesShape(room, 2*farm.MiB); s.Missing == "" {
		t.Errorf("a pool too small: %+v", s)
	}
}
