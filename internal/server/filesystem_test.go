package server

import (
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// TestFileSystems: hosts that have a file system mounted are its clients, however many VMs are behind them; all hosts
// are told at once that it is drained, and the answer says who keeps that.
func TestFileSystems(t *testing.T) {
	l := newLab(t)
	work := fleet.HostFileSystem{Source: "server:/work", Type: "nfs4", MountPoint: "/work", VMs: 3}
	hosts := map[string]*linked{}
	for _, name := range []string{"wn-1", "wn-2", "wn-3"} {
		h := l.joined(name)
		f := h.facts(name, "b")
		if name != "wn-3" {
			f.FileSystems = []fleet.HostFileSystem{{Source: "server:/other", Type: "nfs4", VMs: 9}, work}
		}
		h.tell(fleet.Report{Instance: name, Whole: true, Facts: f})
		hosts[name] = h
	}
	all, err := l.FileSystems.List(t.Context(), site)
	if err != nil || len(all) != 1 || all[0].Clients != 2 || all[0].VMs != 6 || all[0].Budget != 1 ||
		len(all[0].Hosts) != 2 || all[0].Drain != nil {
		t.Fatalf("%+v, %v", all, err)
	}
	if all, err := l.FileSystems.List(t.Context(), ann); err != nil || len(all) != 1 || all[0].Clients != 2 ||
		len(all[0].Hosts) != 0 {
		t.Errorf("for one who may see no hosts: %+v, %v", all, err)
	}
	first, _, err := l.Links.Wanted(t.Context(), hosts["wn-3"].who(), "wn-3", 0)
	if err != nil || len(first.FileSystems) != 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	told := make(chan fleet.WantedList, 1)
	go func() {
		list, _, err := l.Links.Wanted(t.Context(), hosts["wn-3"].who(), "wn-3", first.Revision)
		if err != nil {
			t.Error(err)
		}
		told <- list
	}()
	go l.follow(t.Context())
	deadline := l.clock().Add(time.Hour)
	order := fleet.FileSystemOrder{Deadline: &deadline, Reason: "new disks"}
	if _, err := l.FileSystems.Drain(t.Context(), otto, "work", order); code(err) != farm.CodeNoRole {
		t.Errorf("by a project's operator: %v", err)
	}
	if _, err := l.FileSystems.Drain(t.Context(), site, "home", order); code(err) != farm.CodeNoFileSystem {
		t.Errorf("of one that is not declared: %v", err)
	}
	v, err := l.FileSystems.Drain(t.Context(), site, "work", order)
	if err != nil || v.Drain == nil || v.Hosts[0].Drained || v.Hosts[0].VMs != 3 {
		t.Fatalf("%+v, %v", v, err)
	}
	if list := <-told; len(list.FileSystems) != 1 || list.FileSystems[0].Name != "work" ||
		list.FileSystems[0].Match.Source != "server:/work*" || !list.FileSystems[0].Deadline.Equal(deadline) {
		t.Errorf("a host without VMs is told: %+v", list.FileSystems)
	}
	f := hosts["wn-1"].facts("wn-1", "b")
	work.VMs, work.Drains = 0, []string{"work"}
	f.FileSystems = []fleet.HostFileSystem{work}
	hosts["wn-1"].tell(fleet.Report{Instance: "wn-1", Facts: f})
	l.pass(time.Minute)
	again, err := l.FileSystems.Drain(t.Context(), site, "work", fleet.FileSystemOrder{})
	if err != nil || !again.Drain.Since.Equal(v.Drain.Since) || again.Drain.Deadline != nil ||
		!again.Hosts[0].Drained || again.Hosts[1].Drained || again.VMs != 3 {
		t.Errorf("drained again: %+v, %v", again, err)
	}
	if v, err := l.FileSystems.Resume(t.Context(), site, "work"); err != nil || v.Drain != nil {
		t.Errorf("%+v, %v", v, err)
	}
	list, _, err := l.Links.Wanted(t.Context(), hosts["wn-2"].who(), "wn-2", 0)
	if err != nil || len(list.FileSystems) != 0 {
		t.Errorf("after that: %+v, %v", list.FileSystems, err)
	}
}
