package server

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/accounts"
	"github.com/grange-project/grange/internal/server/action"
	"github.com/grange-project/grange/internal/server/apply"
	"github.com/grange-project/grange/internal/server/hostlink"
	"github.com/grange-project/grange/internal/store"
)

// web is a request that ann may make.
func web(name string) CreateVM {
	return CreateVM{Project: "alice", Name: name, Image: "micro", Shape: "small"}
}

func TestCreate(t *testing.T) {
	l := newLab(t)
	made, err := l.VMs.Create(t.Context(), ann,
		CreateVM{Project: "alice", Name: "web", Count: 2, Image: "micro", Shape: "small", Network: "lan", NewKey: true,
			Tags: map[string]string{"role": "web"}, Needs: []string{"gpu", "kind!=old"},
			UserData: []byte("#cloud-config\n")})
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey([]byte(made.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	public := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	for i, v := range made.VMs {
		kept, _ := l.row(v.ID)
		if d := cmp.Diff(v.VM, kept, comparers...); d != "" {
			t.Errorf("told and kept (-told +kept):\n%s", d)
		}
		want := farm.Lease{Network: "lan", Address: netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", 10+i)),
			MAC: fmt.Sprintf("52:54:0a:00:00:%02x", 10+i), Hostname: fmt.Sprintf("web-%d.example.org", i+1)}
		if d := cmp.Diff(want, v.Lease, comparers...); d != "" {
			t.Error(d)
		}
		if v.State != farm.VMPlacing || v.Owner != "ann" || v.Name != fmt.Sprintf("web-%d", i+1) ||
			!strings.HasPrefix(v.Keys[0], public) || v.Key != v.Keys[0] {
			t.Errorf("%+v", v)
		}
	}
	if n := len(l.entries("vm.create", "done")); n != 1 {
		t.Errorf("%d entries", n)
	}
	if strings.Contains(fmt.Sprint(l.entries("vm.create", "done")), "PRIVATE") {
		t.Error("the audit log has the key")
	}
}

var comparers = cmp.Options{cmp.Comparer(func(a, b farm.CPUSet) bool { return a.Equal(b) }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}

// entries are those of the audit log with this action and outcome, newest first.
func (l *lab) entries(action, outcome string) (found []farm.Entry) {
	l.t.Helper()
	l.view(func(tx *store.Tx) error {
		all, err := tx.Entries("", "", 0, 1000)
		for _, e := range all {
			if e.Action == action && e.Outcome == outcome {
				found = append(found, e)
			}
		}
		return err
	})
	return found
}

func TestCreateRefuses(t *testing.T) {
	l := newLab(t)
	l.create(ann, CreateVM{Project: "alice", Name: "taken", Image: "micro", Shape: "small", Network: "lan",
		Address: netip.MustParseAddr("10.0.0.11")})
	if err := l.putMaximaNow(farm.Maxima{CPUs: 12, CPUModels: []string{"host-*", "EPYC-Rome"}}); err != nil {
		t.Fatal(err)
	}
	scratch := farm.Bytes(1)
	for name, c := range map[string]struct {
		who    farm.Identity
		change func(*CreateVM)
		want   farm.Code
		says   string
	}{
		"nobody":              {eve, func(*CreateVM) {}, farm.CodeNoRole, "eve may not vm.create on alice/web"},
		"another's project":   {ann, func(r *CreateVM) { r.Project = "atlas" }, farm.CodeNoRole, ""},
		"a host":              {farm.Identity{Host: "h1"}, func(*CreateVM) {}, farm.CodeNoRole, ""},
		"no project":          {ann, func(r *CreateVM) { r.Project = "" }, farm.CodeNoRole, ""},
		"a project not there": {site, func(r *CreateVM) { r.Project = "cms" }, action.CodeNoProject, `"cms"`},
		"no name":             {ann, func(r *CreateVM) { r.Name = "" }, farm.CodeBadName, ""},
		"name of odd letters": {ann, func(r *CreateVM) { r.Name = "Web_1" }, farm.CodeBadName, "Web_1"},
		"name with dash":      {ann, func(r *CreateVM) { r.Name = "web-" }, farm.CodeBadName, ""},
		"name too long": {ann, func(r *CreateVM) { r.Name, r.Count = strings.Repeat("a", 62), 2 },
			farm.CodeBadName, ""},
		"name taken": {ann, func(r *CreateVM) { r.Name = "taken" }, CodeNameTaken,
			"alice/taken already, made by ann"},
		"half a digest": {ann, func(r *CreateVM) { r.Image = "sha256:0123abcd" }, CodeBadVM,
			"invalid image digest"},
		"no VMs":       {ann, func(r *CreateVM) { r.Count = -1 }, CodeBadVM, ""},
		"too many VMs": {ann, func(r *CreateVM) { r.Count = 101 }, CodeBadVM, "1 to 100"},
		"more than the quota": {ann, func(r *CreateVM) { r.Count = 5 }, farm.CodeQuota,
			"1 of 5 VMs are in use, and 5 more"},
		"CPUs beyond the quota": {ann, func(r *CreateVM) { r.Count, r.Shape, r.CPUs = 4, "small", 5 },
			farm.CodeQuota, "2 of 20 CPUs"},
		"no image": {ann, func(r *CreateVM) { r.Image = "" }, CodeBadVM, "no image"},
		"image not allowed": {otto, func(r *CreateVM) { r.Project, r.Image = "atlas", "cms-el9" },
			CodeImage, "there are atlas-*, micro"},
		"no such shape": {ann, func(r *CreateVM) { r.Shape = "huge" }, farm.CodeNoShape, ""},
		"shape not allowed": {otto, func(r *CreateVM) { r.Project, r.Shape = "atlas", "large" }, CodeShape,
			"there are small"},
		"more than the shape": {otto, func(r *CreateVM) { r.Project, r.CPUs = "atlas", 3 }, CodeShape, ""},
		"shape by numbers": {otto, func(r *CreateVM) {
			r.Project, r.Shape, r.CPUs, r.Memory = "atlas", "", 1,
				farm.GiB
		}, CodeShape, ""},
		"neither shape nor size": {ann, func(r *CreateVM) { r.Shape = "" }, CodeBadVM, ""},
		"beyond the site's maxima": {ann, func(r *CreateVM) { r.CPUs = 13 }, farm.CodeBeyondMaxima,
			"13 CPUs (at most 12)"},
		"CPU model": {ann, func(r *CreateVM) { r.CPUModel = "Skylake" }, farm.CodeBeyondMaxima,
			"there are host-*, EPYC-Rome"},
		"guest of other CPUs": {ann,
			func(r *CreateVM) { r.Guest = farm.GuestTopology{Sockets: 2, Cores: 2, Threads: 1} },
			farm.CodeBadShape, ""},
		"guest beyond maxima": {ann,
			func(r *CreateVM) { r.Shape, r.Guest = "large", farm.GuestTopology{Sockets: 4, Cores: 2, Threads: 1} },
			farm.CodePolicy, ""},
		"odd scratch":     {ann, func(r *CreateVM) { r.Scratch = &scratch }, farm.CodeBadShape, ""},
		"another's cell":  {ann, func(r *CreateVM) { r.Cell = "west" }, farm.CodeForeignCell, ""},
		"no such cell":    {ann, func(r *CreateVM) { r.Cell = "north" }, farm.CodeNoSuchCell, ""},
		"no such network": {ann, func(r *CreateVM) { r.Network = "wan" }, farm.CodeNoNetwork, ""},
		"network not allowed": {otto, func(r *CreateVM) { r.Project, r.Network = "atlas", "lan" },
			farm.CodeNoNetwork, ""},
		"closed network": {ann, func(r *CreateVM) { r.Network = "inner" }, farm.CodeNoNetwork, ""},
		"address taken": {ann,
			func(r *CreateVM) { r.Network, r.Address = "lan", netip.MustParseAddr("10.0.0.11") }, CodeAddressTaken,
			"leased to another VM"},
		"address of nobody": {ann,
			func(r *CreateVM) { r.Network, r.Address = "lan", netip.MustParseAddr("10.9.0.11") },
			CodeAddressTaken, ""},
		"address for several": {ann,
			func(r *CreateVM) { r.Count, r.Network, r.Address = 2, "lan", netip.MustParseAddr("10.0.0.10") },
			CodeBadVM, ""},
		"address of no network": {ann, func(r *CreateVM) { r.Address = netip.MustParseAddr("10.0.0.10") },
			CodeBadVM, ""},
		"too few addresses": {ann, func(r *CreateVM) { r.Count, r.Network = 3, "lan" }, CodeNoLease,
			"no address left"},
		"too few names": {otto, func(r *CreateVM) { r.Project, r.Count, r.Network = "atlas", 3, "inner" },
			CodeNoLease, "no host name left"},
		"no such group": {ann, func(r *CreateVM) { r.Group = "apart" }, CodeNoGroup, ""},
		"odd selector":  {ann, func(r *CreateVM) { r.Needs = []string{"a b"} }, CodeBadVM, ""},
		"odd tag": {ann, func(r *CreateVM) { r.Tags = map[string]string{"a b": ""} },
			CodeBadVM, ""},
		"odd tag's value": {ann, func(r *CreateVM) { r.Tags = map[string]string{"a": "x\x1b"} },
			CodeBadVM, ""},
		"user data": {ann, func(r *CreateVM) { r.UserData = make([]byte, 64<<10+1) },
			CodeBadVM, "64K"},
		"expired": {ann, func(r *CreateVM) { r.Expires = l.clock() }, CodeBadVM, "past"},
		"lives too long": {otto,
			func(r *CreateVM) { r.Project, r.Expires = "atlas", l.clock().Add(300*time.Hour) },
			farm.CodeBeyondMaxima, "240h"},
		"no key": {ann, func(r *CreateVM) { r.Keys = []string{"hello"} }, CodeBadKey,
			"SSH key 1"},
	} {
		t.Run(name, func(t *testing.T) {
			before := l.count("alice") + l.count("atlas")
			r := web("web")
			c.change(&r)
			_, err := l.VMs.Create(t.Context(), c.who, r)
			if code(err) != c.want || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", code(err), err)
			}
			if l.count("alice")+l.count("atlas") != before {
				t.Error("something was made")
			}
		})
	}
	if denied := l.entries("vm.create", "denied"); len(denied) == 0 || denied[0].Reason == "" {
		t.Errorf("denials leave no entries: %v", denied)
	}
}

func (l *lab) putMaximaNow(m farm.Maxima) error {
	_, err := l.store.Update(l.t.Context(), func(tx *store.Tx) error { return apply.PutMaxima(tx, m) })
	return err
}

func (l *lab) count(project string) (n int) {
	l.view(func(tx *store.Tx) (err error) {
		n, err = tx.CountVMs(store.VMFilter{Project: project})
		return err
	})
	return n
}

// Two creates at once cannot both take the last of a quota, and neither an address or a name.
func TestCreatesAtOnce(t *testing.T) { createsAtOnce(t, newLab(t)) }

func createsAtOnce(t *testing.T, l *lab) {
	var all sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[farm.Code]int{}
	for i := range 16 {
		all.Go(func() {
			r := web(fmt.Sprintf("w%d", i/2)) // each name twice
			_, err := l.VMs.Create(context.Background(), ann, r)
			mu.Lock()
			defer mu.Unlock()
			outcomes[code(err)]++
		})
	}
	all.Wait()
	if outcomes[""] != 5 || outcomes[""]+outcomes[farm.CodeQuota]+outcomes[CodeNameTaken] != 16 ||
		l.count("alice") != 5 {
		t.Errorf("%v, %d VMs", outcomes, l.count("alice"))
	}
}

func TestLeasesAtOnce(t *testing.T) {
	l := newLab(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	outcomes, addresses := map[farm.Code]int{}, map[netip.Prefix]int{}
	for i := range 5 {
		all.Go(func() {
			r := web(fmt.Sprintf("w%d", i))
			r.Network = "lan"
			made, err := l.VMs.Create(context.Background(), ann, r)
			mu.Lock()
			defer mu.Unlock()
			outcomes[code(err)]++
			for _, v := range made.VMs {
				addresses[v.Lease.Address]++
			}
		})
	}
	all.Wait()
	if d := cmp.Diff(map[farm.Code]int{"": 3, CodeNoLease: 2}, outcomes); d != "" || len(addresses) != 3 {
		t.Errorf("%v %s", addresses, d)
	}
}

// The same request under the same key makes its VMs once.
func TestCreateOnce(t *testing.T) {
	l := newLab(t)
	r := web("web")
	r.Once, r.NewKey = "k1", true
	first, err := l.VMs.Create(t.Context(), ann, r)
	if err != nil {
		t.Fatal(err)
	}
	again, err := l.VMs.Create(t.Context(), ann, r)
	if err != nil || !again.Again || again.PrivateKey != "" || len(again.VMs) != 1 ||
		again.VMs[0].ID != first.VMs[0].ID {
		t.Errorf("%+v, %v", again, err)
	}
	r.Name = "other"
	if _, err := l.VMs.Create(t.Context(), ann, r); code(err) != farm.CodeOtherRequest {
		t.Error(err)
	}
	if _, err := l.VMs.Create(t.Context(), site, r); err != nil {
		t.Error("another's key is another key:", err)
	}
	if n := l.count("alice"); n != 2 {
		t.Errorf("%d VMs", n)
	}
}

// So are tokens; their secrets are told once.
func TestTokensOnce(t *testing.T) {
	l := newLab(t)
	if _, err := l.Accounts.PutUser(t.Context(), site, farm.User{Name: "zoe"}, 0); err != nil {
		t.Fatal(err)
	}
	for name, create := range map[string]func(key, changed string) (id, text string, err error){
		"token": func(key, changed string) (string, string, error) {
			k, text, err := l.Accounts.CreateToken(t.Context(), site, accounts.TokenOrder{User: "zoe", Note: changed,
				Once: key})
			return k.ID, text, err
		},
		"join token": func(key, changed string) (string, string, error) {
			k, text, err := l.Links.CreateJoinToken(t.Context(), site, hostlink.JoinOrder{Cell: "east", Name: changed,
				Once: key})
			return k.ID, text, err
		},
	} {
		key := "of " + name
		id, text, err := create(key, "a")
		if err != nil || text == "" {
			t.Fatalf("%s: %q, %v", name, text, err)
		}
		again, text, err := create(key, "a")
		if err != nil || again != id || text != "" {
			t.Errorf("%s, again: %s, %q, %v", name, again, text, err)
		}
		if _, _, err := create(key, "b"); code(err) != farm.CodeOtherRequest {
			t.Errorf("%s, another under its key: %v", name, err)
		}
		if other, text, err := create("", "a"); err != nil || other == id || text == "" {
			t.Errorf("%s, without a key: %s, %q, %v", name, other, text, err)
		}
		if _, _, err := create(strings.Repeat("k", 1000), "a"); code(err) != farm.CodeUsage {
			t.Errorf("%s, a long key: %v", name, err)
		}
	}
}

func TestPurposeAndExpiry(t *testing.T) {
	l := newLab(t)
	v := l.create(otto, CreateVM{Project: "atlas", Name: "wn", Image: "atlas-el9", Shape: "small", Network: "inner"})[0]
	if v.Shape.Purpose != farm.PurposeService {
		t.Error("the only cell is one of services, and the VM is tuned for", v.Shape.Purpose)
	}
	if !v.Expires.Equal(l.clock().Add(240 * time.Hour)) {
		t.Error("expires", v.Expires)
	}
	if v.Lease.Hostname != "wn-1" || v.Lease.Address.IsValid() || !strings.HasPrefix(v.Lease.MAC, "56:") {
		t.Errorf("%+v", v.Lease)
	}
	if w := l.create(ann, web("web"))[0]; w.Shape.Purpose != farm.PurposeCompute || !w.Expires.IsZero() {
		t.Errorf("%+v", w)
	}
}

func TestClosedCells(t *testing.T) {
	l := newLab(t)
	if _, err := l.Cells.Close(t.Context(), site, "west", 0, "new switches"); err != nil {
		t.Fatal(err)
	}
	_, err := l.VMs.Create(t.Context(), otto, CreateVM{Project: "atlas", Name: "wn", Image: "micro", Shape: "small"})
	if code(err) != farm.CodeCellsClosed || !strings.Contains(err.Error(), "west is closed (new switches)") {
		t.Error(err)
	}
}

func TestNamesOnOneNetwork(t *testing.T) {
	l := newLab(t)
	l.update(func(tx *store.Tx) error {
		return tx.PutProject(farm.Project{Name: "atlas"})
	})
	r := web("web")
	r.Network = "lan"
	l.create(ann, r)
	r.Project = "atlas"
	if v := l.create(otto, r)[0]; v.Lease.Hostname != "web-atlas.example.org" {
		t.Errorf("%+v", v.Lease)
	}
}

// TestCreateBandwidth: a VM keeps the bandwidth of its shape, and is refused where no host could hold it to that.
func TestCreateBandwidth(t *testing.T) {
	l := newLab(t)
	want := farm.Bandwidth{In: 500e6, Out: 100e6}
	l.update(func(tx *store.Tx) error {
		return tx.PutShape(farm.Shape{Name: "slow", CPUs: 1, Memory: farm.GiB, Network: farm.NetworkNone,
			Bandwidth: want})
	})
	r := web("slow")
	r.Shape = "slow"
	if _, err := l.VMs.Create(t.Context(), ann, r); !farm.IsCode(err, farm.CodeNotLimited) {
		t.Errorf("without a network: %v", err)
	}
	r.Network = "lan"
	made := l.create(ann, r)
	if kept, _ := l.row(made[0].ID); kept.Shape.Bandwidth != want {
		t.Errorf("keeps %v, want %v", kept.Shape.Bandwidth, want)
	}
}
