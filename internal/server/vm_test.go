package server

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/store"
)

// actions are those of people on one VM, in the order of the table below.
var actions = []policy.Action{policy.StartVM, policy.StopVM, policy.RestartVM, policy.ResizeVM, policy.RebuildVM,
	policy.UpdateVM, policy.DeleteVM, policy.ConsoleVM}

// Every state with every action: y it is done, - nothing to do, t tried again, r made anew, x the row goes, n refused.
func TestStates(t *testing.T) {
	for state, want := range map[farm.VMState]string{
		//                  start stop restart resize rebuild update delete console
		farm.VMPlacing:  "-nnyyyxn",
		farm.VMStarting: "-yyyyyyn",
		farm.VMRunning:  "-yyyyyyy",
		farm.VMStopping: "y-nyyyyy",
		farm.VMStopped:  "y-nyyyyn",
		farm.VMFailed:   "tyyyyyyy",
		farm.VMUnknown:  "yyynyyyn",
		farm.VMLost:     "nnnnryxn",
		farm.VMDeleting: "nnnnnn-n",
		farm.VMGone:     "nnnnnn-n",
	} {
		vm := farm.VM{Project: "p", Name: "v", Wanted: farm.Wanted{Power: farm.PowerOn}}
		if state == farm.VMStopped || state == farm.VMStopping {
			vm.Wanted.Power = farm.PowerOff
		}
		got := ""
		for _, a := range actions {
			v, err := judge(vm, state, a)
			got += string("ny-trx"[v])
			if (v == refuse) != (code(err) == farm.CodeVMState) ||
				err != nil && !strings.Contains(err.Error(), "p/v is "+string(state)) {
				t.Errorf("%s %s: %v", state, a, err)
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", state, got, want)
		}
	}
}

func TestStartOfWhatPoweredOffByItself(t *testing.T) {
	vm := farm.VM{Host: "h", Wanted: farm.Wanted{Power: farm.PowerOn},
		Observed: farm.Observed{State: farm.VMStopped, Reason: "its guest powered off"}}
	if state := vm.State(false); state != farm.VMStopped {
		t.Errorf("it is shown as %s", state)
	}
	if v, err := judge(vm, farm.VMStopped, policy.StartVM); v != retry || err != nil {
		t.Errorf("%v, %v: its host does nothing unless it is asked anew", v, err)
	}
	vm.Observed.Reason = ""
	if state := vm.State(false); state != farm.VMStarting {
		t.Errorf("about to start, and shown as %s", state)
	}
}

func TestRestartOfWhatPeopleStopped(t *testing.T) {
	vm := farm.VM{Wanted: farm.Wanted{Power: farm.PowerOff}}
	for _, state := range []farm.VMState{farm.VMUnknown, farm.VMFailed} {
		if _, err := judge(vm, state, policy.RestartVM); err == nil {
			t.Error(state)
		}
	}
}

// act runs an action on a VM.
func (l *lab) act(a policy.Action, who farm.Identity, id string) (VMView, error) {
	ctx := l.t.Context()
	switch a {
	case policy.StartVM:
		return l.VMs.Start(ctx, who, id, 0)
	case policy.StopVM:
		return l.VMs.Stop(ctx, who, id, 0)
	case policy.RestartVM:
		return l.VMs.Restart(ctx, who, id, 0)
	case policy.RebuildVM:
		return l.VMs.Rebuild(ctx, who, id, 0, "")
	case policy.ResizeVM:
		return l.VMs.Resize(ctx, who, id, 0, ResizeVM{CPUs: 3})
	case policy.UpdateVM:
		return l.VMs.Update(ctx, who, id, 0, UpdateVM{Tags: &map[string]string{"a": "b"}})
	case policy.DeleteVM:
		return l.VMs.Delete(ctx, who, id, 0)
	}
	panic(a)
}

// A database that was restored knows less than the host has done: what is asked for then is still something new there.
func TestLifeAfterRestore(t *testing.T) {
	l := newLab(t)
	h := l.host("h1", "east")
	v := l.running(ann, web("web"), h)
	l.update(func(tx *store.Tx) error {
		return tx.SetVMObserved(v.ID, farm.Observed{State: farm.VMRunning, Since: l.clock(), Boots: 3, Builds: 2})
	})
	if !l.get(v.ID).Done() {
		t.Error("its host has still to do something")
	}
	for _, s := range []struct {
		action policy.Action
		want   farm.Wanted
	}{
		{policy.RestartVM, farm.Wanted{Power: farm.PowerOn, Boots: 4}},
		{policy.RebuildVM, farm.Wanted{Power: farm.PowerOn, Boots: 4, Builds: 3, Fresh: 3}},
	} {
		if _, err := l.act(s.action, ann, v.ID); err != nil {
			t.Fatal(err)
		}
		if got := l.get(v.ID); got.Wanted != s.want || got.Done() {
			t.Errorf("%s: %+v", s.action, got.Wanted)
		}
	}
}

func TestLife(t *testing.T) {
	l := newLab(t)
	h := l.host("h1", "east")
	v := l.running(ann, web("web"), h)
	if v.State != farm.VMRunning || v.HostName != "h1" {
		t.Fatalf("%+v", v)
	}
	type step struct {
		action policy.Action
		says   farm.VMState // of the host, then
		want   farm.Wanted
		state  farm.VMState
	}
	for i, s := range []step{
		{policy.RestartVM, farm.VMRunning, farm.Wanted{Power: farm.PowerOn, Boots: 1}, farm.VMRunning},
		{policy.StopVM, "", farm.Wanted{Power: farm.PowerOff, Boots: 1}, farm.VMStopping},
		{policy.StopVM, farm.VMStopped, farm.Wanted{Power: farm.PowerOff, Boots: 1}, farm.VMStopped},
		{policy.StartVM, "", farm.Wanted{Power: farm.PowerOn, Boots: 1}, farm.VMStarting},
		{policy.StartVM, farm.VMFailed, farm.Wanted{Power: farm.PowerOn, Boots: 1}, farm.VMFailed},
		{policy.StartVM, farm.VMRunning, farm.Wanted{Power: farm.PowerOn, Boots: 2}, farm.VMRunning},
		{policy.RebuildVM, farm.VMRunning, farm.Wanted{Power: farm.PowerOn, Boots: 2, Builds: 1, Fresh: 1},
			farm.VMRunning},
		{policy.DeleteVM, "", farm.Wanted{Power: farm.PowerDeleted, Boots: 2, Builds: 1, Fresh: 1}, farm.VMDeleting},
		{policy.DeleteVM, "", farm.Wanted{Power: farm.PowerDeleted, Boots: 2, Builds: 1, Fresh: 1}, farm.VMDeleting},
	} {
		if _, err := l.act(s.action, ann, v.ID); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if s.says != "" {
			l.says(v.ID, s.says)
		}
		if got := l.get(v.ID); got.Wanted != s.want || got.State != s.state {
			t.Errorf("step %d, %s: %+v %s", i, s.action, got.Wanted, got.State)
		}
	}
	if used := l.count("alice"); used != 1 {
		t.Errorf("%d rows: the name is free before its host has said that it is gone", used)
	}
}

func TestDeleteWithoutHost(t *testing.T) {
	l := newLab(t)
	v := l.create(ann, web("web"))[0]
	gone, err := l.VMs.Delete(t.Context(), ann, "alice/web", v.Revision)
	if err != nil || gone.State != farm.VMGone {
		t.Error(gone.State, err)
	}
	if _, there := l.row(v.ID); there {
		t.Error("the row is there")
	}
	if e := l.entries("vm.gone", "done"); len(e) != 1 || !strings.Contains(e[0].Reason, v.ID) {
		t.Errorf("%+v", e)
	}
	if _, err := l.VMs.Get(t.Context(), ann, "alice/web"); code(err) != farm.CodeNoVM {
		t.Error(err)
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	l := newLab(t)
	h := l.host("h1", "east")
	v := l.running(ann, web("web"), h)
	for _, a := range []policy.Action{policy.StopVM, policy.DeleteVM, policy.UpdateVM, policy.RebuildVM} {
		for _, who := range []farm.Identity{otto, eve, {Host: "h1"}, {}} {
			if _, err := l.act(a, who, v.ID); code(err) != farm.CodeNoVM {
				t.Errorf("%s by %+v: %v", a, who, err)
			}
		}
		if e := l.entries(string(a), "denied"); len(e) != 4 || e[0].Target != "alice/web" || e[0].Project != "alice" {
			t.Errorf("%s: %+v", a, e)
		}
	}
	if got := l.get(v.ID); got.Revision != v.Revision {
		t.Error("what was denied has changed something")
	}
	if _, err := l.VMs.Get(t.Context(), eve, "alice/none"); code(err) != farm.CodeNoRole {
		t.Error("eve learns which VMs alice has not:", err)
	}
	if _, err := l.VMs.Stop(t.Context(), site, v.ID, 0); err != nil {
		t.Error(err)
	}
}

// An update that was decided on an older view is refused, and says who changed what. What the host reports is no
// conflict.
func TestConflicts(t *testing.T) {
	l := newLab(t)
	v := l.running(ann, web("web"), l.host("h1", "east"))
	l.says(v.ID, farm.VMRunning)
	stopped, err := l.VMs.Stop(t.Context(), site, v.ID, v.Revision)
	if err != nil {
		t.Fatal(err)
	}
	l.says(v.ID, farm.VMStopped)
	_, err = l.VMs.Delete(t.Context(), ann, v.ID, v.Revision)
	if code(err) != action.CodeChanged ||
		!strings.Contains(err.Error(), fmt.Sprintf("at %d: site, vm.stop", stopped.Revision)) {
		t.Error(err)
	}
	if _, err := l.VMs.Start(t.Context(), ann, v.ID, stopped.Revision); err != nil {
		t.Error("a report since then is no conflict:", err)
	}
}

// A change that is meant for an older revision is refused, and says who changed what; one that is meant for the newest
// is made.
func TestConflictsOfOtherThings(t *testing.T) {
	l := newLab(t)
	h := l.host("h1", "east")
	ctx, group := t.Context(), farm.ServerGroup{Project: "alice", Name: "g", Affinity: farm.Apart}
	user := farm.User{Name: "zoe", Subjects: []string{"CN=Zoe,O=Grid,C=CH"}}
	type change struct {
		first func() (int64, error) // what others do; its revision
		do    func(revision int64) error
		says  string
	}
	revision := func(r int64, err error) (int64, error) { return r, err }
	for name, c := range map[string]change{
		"cell": {func() (int64, error) {
			v, err := l.Cells.Close(ctx, site, "west", 0, "disks")
			return revision(v.Revision, err)
		},
			func(r int64) error {
				_, err := l.Cells.Open(ctx, site, "west", r)
				return err
			}, "site, cell.close, disks"},
		"drain of a cell": {func() (int64, error) {
			v, err := l.Cells.Close(ctx, site, "east", 0, "")
			return revision(v.Revision, err)
		},
			func(r int64) error {
				_,
					err := l.Cells.Drain(ctx, site, "east", r, DrainOrder{})
				return err
			}, "site, cell.close"},
		"group": {func() (int64, error) {
			v, err := l.Groups.Put(ctx, ann, group, 0)
			return revision(v.Revision, err)
		},
			func(r int64) error { return l.Groups.Delete(ctx, ann, "alice", "g", r) },
			"ann, group.write, anti-affinity"},
		"user": {func() (int64, error) {
			v, err := l.Accounts.PutUser(ctx, site, user, 0)
			return revision(v.Revision,
				err)
		},
			func(r int64) error { return l.Accounts.DeleteUser(ctx, site, "zoe", r) }, "site, user.write, subjects"},
		"host": {func() (int64, error) {
			v, err := l.Hosts.Label(ctx, site, []string{"h1"}, LabelOrder{Set: map[string]string{"a": "b"}})
			return revision(v[0].Revision, err)
		},
			func(r int64) error { return l.Hosts.Forget(ctx, site, "h1", r) }, "site, host.label"},
	} {
		newest, err := c.first()
		if err != nil || newest < 2 {
			t.Fatalf("%s: %d, %v", name, newest, err)
		}
		if err := c.do(newest - 1); code(err) != action.CodeChanged ||
			!strings.Contains(err.Error(), fmt.Sprintf("; at %d: %s", newest, c.says)) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "host" { // what it reports is no conflict
			h.Facts.ScratchFree = farm.GiB
			l.update(func(tx *store.Tx) error { return tx.SetHostFacts(h.ID, h.Facts) })
		}
		if err := c.do(newest); err != nil {
			t.Errorf("%s, as it is: %v", name, err)
		}
	}
	for name, do := range map[string]func() error{
		"a group that is gone": func() error { _, err := l.Groups.Put(ctx, ann, group, 1); return err },
		"a user that is gone":  func() error { _, err := l.Accounts.PutUser(ctx, site, user, 1); return err },
	} {
		if err := do(); code(err) != action.CodeChanged {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUpdate(t *testing.T) {
	l := newLab(t)
	v := l.create(otto, CreateVM{Project: "atlas", Name: "wn", Image: "micro", Shape: "small"})[0]
	never, later, past, long := time.Time{}, l.clock().Add(time.Hour), l.clock().Add(-time.Hour), l.clock().Add(
		1000*time.Hour)
	for name, c := range map[string]struct {
		u    UpdateVM
		want farm.Code
	}{
		"later":    {UpdateVM{Expires: &later}, ""},
		"past":     {UpdateVM{Expires: &past}, CodeBadVM},
		"too long": {UpdateVM{Expires: &long}, farm.CodeBeyondMaxima},
		"tags":     {UpdateVM{Tags: &map[string]string{"a": ""}}, ""},
		"odd tags": {UpdateVM{Tags: &map[string]string{"": ""}}, CodeBadVM},
	} {
		if _, err := l.VMs.Update(t.Context(), otto, v.ID, 0, c.u); code(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	got, err := l.VMs.Update(t.Context(), otto, v.ID, 0, UpdateVM{Expires: &never})
	if err != nil || !got.Expires.Equal(l.clock().Add(240*time.Hour)) {
		t.Error("never is as long as the project's VMs live:", got.Expires, err)
	}
}

// A VM stays what it is when its host does not have what it is to be rebuilt from.
func TestRebuildNeedsTheImage(t *testing.T) {
	l := newLab(t)
	v := l.running(ann, CreateVM{Project: "alice", Name: "web", Image: "micro", Shape: "small"}, l.host("h1", "east"))
	for image, want := range map[string]farm.Code{"el9": farm.CodeNoImage, "sha256:1234": CodeBadVM, "micro": ""} {
		got, err := l.VMs.Rebuild(t.Context(), ann, v.ID, 0, image)
		if code(err) != want || err != nil && l.must(v.ID).Image != "micro" {
			t.Errorf("%s: %+v, %v", image, got, err)
		}
	}
}

func TestResize(t *testing.T) {
	l := newLab(t)
	v := l.running(ann, web("web"), l.host("h1", "east"))
	other := l.running(ann, web("other"), l.host("h2", "east"))
	waits := l.create(ann, web("waits"))[0]
	big, err := l.VMs.Resize(t.Context(), ann, v.ID, 0, ResizeVM{CPUs: 12})
	if err != nil || big.Resize == nil || big.Resize.CPUs != 12 || big.Shape.CPUs != 2 ||
		big.Resize.Memory != v.Shape.Memory {
		t.Fatalf("%+v %v", big, err)
	}
	// What is wanted counts, before any host has it: 16 of 20 are in use.
	if _, err := l.VMs.Resize(t.Context(), ann, other.ID, 0, ResizeVM{CPUs: 9}); code(err) != farm.CodeQuota {
		t.Error(err)
	}
	if _, err := l.VMs.Resize(t.Context(), ann, other.ID, 0, ResizeVM{CPUs: 6}); err != nil {
		t.Error(err)
	}
	if _, err := l.VMs.Resize(t.Context(), ann, v.ID, 0, ResizeVM{CPUs: 13}); code(err) != farm.CodeQuota {
		t.Error("once more:", err)
	}
	if _, err := l.VMs.Resize(t.Context(), ann, v.ID, 0,
		ResizeVM{Memory: 3*farm.GiB + 1}); code(err) != farm.CodeBadShape {
		t.Error(err)
	}
	if _, err := l.VMs.Resize(t.Context(), ann, v.ID, 0, ResizeVM{}); code(err) != CodeBadVM {
		t.Error(err)
	}
	if got, err := l.VMs.Resize(t.Context(), ann, waits.ID, 0, ResizeVM{CPUs: 1}); err != nil ||
		(got.Resize != nil || got.Shape.CPUs != 1) {
		t.Errorf("%+v", got)
	}
}

func TestList(t *testing.T) {
	l := newLab(t)
	h := l.host("h1", "east")
	for i := range 4 {
		r := web(fmt.Sprintf("w%d", i))
		r.Tags = map[string]string{"n": fmt.Sprint(i % 2)}
		v := l.create(ann, r)[0]
		if i%2 == 0 {
			l.put(v.VM, h)
			l.says(v.ID, farm.VMRunning)
		}
	}
	l.create(otto, CreateVM{Project: "atlas", Name: "wn", Count: 2, Image: "micro", Shape: "small"})
	names := func(who farm.Identity, f VMFilter) (all []string) {
		t.Helper()
		for {
			page, err := l.VMs.List(t.Context(), who, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range page.Items {
				all = append(all, action.Label(v.VM))
			}
			if f.After = page.Next; f.After == "" {
				return all
			}
		}
	}
	for name, c := range map[string]struct {
		who  farm.Identity
		f    VMFilter
		want string
	}{
		"all":          {site, VMFilter{}, "alice/w0 alice/w1 alice/w2 alice/w3 atlas/wn-1 atlas/wn-2"},
		"page by page": {site, VMFilter{Limit: 1}, "alice/w0 alice/w1 alice/w2 alice/w3 atlas/wn-1 atlas/wn-2"},
		"mine":         {ann, VMFilter{Limit: 3}, "alice/w0 alice/w1 alice/w2 alice/w3"},
		"another's":    {ann, VMFilter{Project: "atlas"}, ""},
		"of a token": {farm.Identity{User: "site", Projects: []string{"atlas"}}, VMFilter{},
			"atlas/wn-1 atlas/wn-2"},
		"nobody's":        {eve, VMFilter{}, ""},
		"running":         {ann, VMFilter{State: farm.VMRunning, Limit: 1}, "alice/w0 alice/w2"},
		"on a host":       {ann, VMFilter{Host: "h1"}, "alice/w0 alice/w2"},
		"of an owner":     {site, VMFilter{Owner: "otto"}, "atlas/wn-1 atlas/wn-2"},
		"by name":         {site, VMFilter{Name: "w?"}, "alice/w0 alice/w1 alice/w2 alice/w3"},
		"by tag":          {site, VMFilter{Tags: map[string]string{"n": "1"}}, "alice/w1 alice/w3"},
		"with a tag":      {site, VMFilter{Tags: map[string]string{"n": ""}}, "alice/w0 alice/w1 alice/w2 alice/w3"},
		"behind the last": {ann, VMFilter{After: "alice/w3"}, ""},
	} {
		if got := strings.Join(names(c.who, c.f), " "); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if _, err := l.VMs.List(t.Context(), site, VMFilter{Host: "h9"}); code(err) != action.CodeNoHost {
		t.Error(err)
	}
}

func TestGroups(t *testing.T) {
	l := newLab(t)
	g := farm.ServerGroup{Project: "alice", Name: "ha", Affinity: farm.Apart}
	if _, err := l.Groups.Put(t.Context(), ann, g, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Groups.Put(t.Context(), otto, g, 0); code(err) != farm.CodeNoRole {
		t.Error(err)
	}
	r := web("web")
	r.Group, r.Count = "ha", 2
	made := l.create(ann, r)
	groups, err := l.Groups.List(t.Context(), ann, "")
	if err != nil || len(groups) != 1 || cmp.Diff([]string{"web-1", "web-2"}, groups[0].VMs) != "" {
		t.Errorf("%+v %v", groups, err)
	}
	other := g
	other.Affinity = farm.Together
	if _, err := l.Groups.Put(t.Context(), ann, other, 0); code(err) != CodeGroupUsed {
		t.Error(err)
	}
	if _, err := l.Groups.Put(t.Context(), ann, g, 0); err != nil {
		t.Error("the same again:", err)
	}
	if err := l.Groups.Delete(t.Context(), ann, "alice", "ha", 0); code(err) != CodeGroupUsed {
		t.Error(err)
	}
	for _, v := range made {
		if _, err := l.VMs.Delete(t.Context(), ann, v.ID, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Groups.Delete(t.Context(), ann, "alice", "ha", 0); err != nil {
		t.Error(err)
	}
	other.Affinity = "nearby"
	if _, err := l.Groups.Put(t.Context(), ann, other, 0); code(err) != CodeBadVM {
		t.Error(err)
	}
}

// TestBoundOfGroups: a project has a bounded number of server groups. A list has each caller's own, whose names may
// begin alike.
func TestBoundOfGroups(t *testing.T) {
	l := newLab(t)
	put := func(who farm.Identity, project, name string) error {
		_, err := l.Groups.Put(t.Context(), who,
			farm.ServerGroup{Project: project, Name: name, Affinity: farm.Apart}, 0)
		return err
	}
	for n := range farm.MaxServerGroups {
		if err := put(ann, "alice", fmt.Sprintf("g%03d", n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(ann, "alice", "more"); code(err) != farm.CodeQuota {
		t.Error("one more:", err)
	}
	if err := put(ann, "alice", "g000"); err != nil {
		t.Error("one that is there:", err)
	}
	l.update(func(tx *store.Tx) error { return tx.PutProject(farm.Project{Name: "alice2"}) })
	if err := errors.Join(put(root, "atlas", "a"), put(root, "alice2", "b"),
		l.Groups.Delete(t.Context(), ann, "alice", "g001", 0), put(ann, "alice", "c")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		who     farm.Identity
		project string
		want    int
	}{{ann, "", 100}, {ann, "alice", 100}, {otto, "", 1}, {otto, "atlas", 1}, {eve, "", 0}, {root, "", 102},
		{root, "alice2", 1}, {site, "", 102},
		{farm.Identity{User: "site", Means: "token", Projects: []string{"alice2"}}, "", 1}} {
		if got, err := l.Groups.List(t.Context(), c.who, c.project); err != nil || len(got) != c.want {
			t.Errorf("%+v of %q: %d, %v", c.who, c.project, len(got), err)
		}
	}
}

// TestBoundWithoutQuota: a project whose VMs are not limited has a bounded number of them.
func TestBoundWithoutQuota(t *testing.T) {
	l := newLab(t)
	l.view(func(tx *store.Tx) error {
		c := &call{views{Call: &action.Call{Tx: tx}, s: l.Server}}
		for vms, want := range map[int]farm.Code{farm.MaxVMs: "", farm.MaxVMs + 1: farm.CodeQuota} {
			p, more := farm.Project{Name: "free", Quota: farm.Quota{CPUs: 1}}, farm.Quota{VMs: vms}
			if err := c.quota(p, more); code(err) != want {
				t.Errorf("%d: %v", vms, err)
			}
			p.Quota.VMs = 2 * vms
			if err := c.quota(p, more); err != nil {
				t.Errorf("%d with a quota: %v", vms, err)
			}
		}
		return nil
	})
}

func TestKeys(t *testing.T) {
	ed, _, err := newKey("ann@laptop")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text, want, says string
	}{
		"as it is":      {ed, ed, ""},
		"white space":   {"  " + ed + "\n\n", ed, ""},
		"several":       {ed + "\n" + ed, "", "several lines"},
		"options":       {`command="rm" ` + ed, "", "options"},
		"private":       {"-----BEGIN OPENSSH PRIVATE KEY-----", "", "private key"},
		"RSA too short": {"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC3Zp0vX0Fy0mFz0k3s3V3l8b8f2bC2z1GqQ8E8JYv5o1m1Qp8z3sXqk2w5m8x1 x", "", ""},
		"nothing":       {"", "", "not a public key"},
		"long":          {ed + strings.Repeat("x", maxKey), "", "bytes"},
	} {
		got, err := plainKeys([]string{c.text, c.text})
		if c.want == "" {
			if code(err) != CodeBadKey || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		} else if d := cmp.Diff([]string{c.want}, got); d != "" || err != nil {
			t.Errorf("%s: %s %v", name, d, err)
		}
	}
}

func FuzzKey(f *testing.F) {
	f.Add("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGx a")
	f.Fuzz(func(t *testing.T, text string) {
		key, err := plainKey(text)
		if err != nil {
			return
		}
		if again, err := plainKey(key); err != nil || again != key || strings.ContainsAny(key, "\n\r\x00") {
			t.Errorf("%q becomes %q, then %q %v", text, key, again, err)
		}
	})
}

func TestExpiry(t *testing.T) {
	l := newLab(t)
	h := l.host("h1", "east")
	r := web("web")
	r.Expires = l.clock().Add(time.Hour)
	placed := l.running(ann, r, h)
	r.Name = "waits"
	waits := l.create(ann, r)[0]
	epoch := l.epoch()
	if err := l.upkeep.expire(t.Context(), epoch); err != nil || l.get(placed.ID).State != farm.VMRunning {
		t.Error("too early", err)
	}
	l.pass(time.Hour + time.Second)
	l.seen(h)
	if err := l.upkeep.expire(t.Context(), epoch); err != nil {
		t.Fatal(err)
	}
	if got := l.get(placed.ID); got.State != farm.VMDeleting {
		t.Error(got.State)
	}
	if _, there := l.row(waits.ID); there {
		t.Error("it has no host, and is there")
	}
	if e := l.entries("vm.delete", "done"); len(e) != 2 || e[0].Who != "grange" ||
		!strings.HasPrefix(e[0].Reason, "expired at 2026-11-21T13:00:00Z") {
		t.Errorf("%+v", e)
	}
	if err := l.upkeep.expire(t.Context(), epoch-1); err != nil {
		t.Error("nothing to do needs no lease:", err)
	}
	r.Name = "third"
	r.Expires = l.clock().Add(time.Second)
	l.create(ann, r)
	l.pass(time.Minute)
	if err := l.upkeep.expire(t.Context(), epoch-1); code(err) != store.CodeNotLeader {
		t.Error("another one leads:", err)
	}
}

func TestNothingTakesADeletionBack(t *testing.T) {
	deleted := farm.VM{Project: "alice", Name: "v", Host: "h", Wanted: farm.Wanted{Power: farm.PowerDeleted}}
	for state := range legal {
		for _, a := range []policy.Action{policy.StartVM, policy.StopVM, policy.RestartVM, policy.ResizeVM,
			policy.RebuildVM, policy.UpdateVM} {
			if v, err := judge(deleted, state, a); err == nil {
				t.Errorf("%s of a deleted VM that is %s: verdict %d", a, state, v)
			}
		}
		if _, err := judge(deleted, state, policy.DeleteVM); err != nil {
			t.Errorf("deleting it again while it is %s: %v", state, err)
		}
	}
}
