package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/grange-project/grange/internal/farm"
)

func size(b farm.Bytes) *farm.Bytes { return &b }

// site is a policy as a site with two experiments has it: narrow rules first.
var site = []Rule{
	{Name: "banned", Users: []string{"mallory", "4711"}, Deny: "see the site's security officer"},
	{Name: "atlas production", Accounts: []string{"atlasprd*"}, Image: "atlas-el9", Images: []string{"atlas-*"},
		Shape: "wide", Network: "user"},
	{Name: "cms queue", Queues: []string{"cms"}, Systems: []string{"slurm", "htcondor"}, Image: "cms-el8",
		Binds: []string{"/cvmfs:ro", "/home"}, Mounts: []string{"/home", "/data/cms*"}},
	{Name: "staff", Groups: []string{"staff", "50"}, MaxCPUs: 16, MaxScratch: size(0)},
	{Name: "logins", Systems: []string{"none"}, MaxCPUs: 1, MaxMemory: farm.GiB},
	{Name: "everybody", Image: "micro", Images: []string{"micro", "el9"}, Networks: []string{"none"}, MaxCPUs: 4,
		MaxMemory: 8 * farm.GiB},
}

func TestDecide(t *testing.T) {
	slurm := func(w Who) Who { w.System = farm.Slurm; return w }
	for name, c := range map[string]struct {
		who    Who
		wish   Wish
		want   Decision
		denied string // part of the message
	}{
		"nobody in particular": {who: slurm(Who{User: "ann"}),
			want: Decision{Image: "micro", MaxCPUs: 4, MaxMemory: 8 * farm.GiB, Reasons: []string{
				`image micro: rule "everybody"`, `at most 4 CPUs: rule "everybody"`,
				`at most 8G of memory: rule "everybody"`}}},
		"each setting from the first rule that has it": {who: slurm(Who{User: "prod", Account: "atlasprd1",
			GIDs: []uint32{50}}), want: Decision{Image: "atlas-el9", Shape: "wide", Network: "user", MaxCPUs: 16,
			MaxMemory: 8 * farm.GiB, MaxScratch: size(0), Reasons: []string{
				`image atlas-el9: rule "atlas production"`, `shape wide: rule "atlas production"`,
				`network user: rule "atlas production"`,
				`at most 16 CPUs: rule "staff"`, `at most 8G of memory: rule "everybody"`,
				`at most 0 of scratch: rule "staff"`}}},
		"the job's own wish": {who: slurm(Who{Account: "atlasprd"}), wish: Wish{Image: "atlas-el7"},
			want: Decision{Image: "atlas-el7", Shape: "wide", Network: "user", MaxCPUs: 4, MaxMemory: 8 * farm.GiB}},
		"the site's own word again": {who: slurm(Who{Account: "atlasprd"}), wish: Wish{Network: "user"},
			want: Decision{Image: "atlas-el9", Shape: "wide", Network: "user", MaxCPUs: 4, MaxMemory: 8 * farm.GiB}},
		"a foreign image": {who: slurm(Who{Account: "atlasprd"}), wish: Wish{Image: "el9"},
			denied: `rule "atlas production" of this host's policy does not allow image "el9"; there is atlas-*`},
		"an image of nobody": {who: slurm(Who{}), wish: Wish{Image: "own"},
			denied: `rule "everybody" of this host's policy does not allow image "own"; there are micro, el9`},
		"network": {who: slurm(Who{}), wish: Wish{Network: "user"}, denied: `network "user"`},
		"queue and binds": {who: slurm(Who{Queue: "cms"}),
			wish: Wish{Mounts: []string{"/cvmfs", "/home/ann/run", "/data/cms7/x"}},
			want: Decision{Image: "cms-el8", Binds: []string{"/cvmfs:ro", "/home"}, MaxCPUs: 4,
				MaxMemory: 8 * farm.GiB}},
		"a mount of others": {who: slurm(Who{Queue: "cms"}), wish: Wish{Mounts: []string{"/data/atlas"}},
			denied: `rule "cms queue" of this host's policy does not allow a directory bound at /data/atlas`},
		"that queue elsewhere": {who: Who{System: farm.PBS, Queue: "cms"}, wish: Wish{Mounts: []string{"/x"}},
			want: Decision{Image: "micro", MaxCPUs: 4, MaxMemory: 8 * farm.GiB}},
		"outside of batch": {who: Who{User: "ann"},
			want: Decision{Image: "micro", MaxCPUs: 1, MaxMemory: farm.GiB}},
		"banned by name":   {who: slurm(Who{User: "mallory", Account: "atlasprd"}), denied: "security officer"},
		"banned by number": {who: slurm(Who{User: "u4711", UID: 4711}), denied: "security officer"},
		"too many CPUs":    {who: slurm(Who{}), wish: Wish{CPUs: 5}, denied: "5 CPUs; at most 4"},
		"too much memory": {who: slurm(Who{}), wish: Wish{Memory: 9 * farm.GiB},
			denied: "9G of memory; at most 8G"},
		"too much scratch": {who: slurm(Who{Groups: []string{"staff"}}), wish: Wish{Scratch: farm.GiB},
			denied: `rule "staff" of this host's policy does not allow 1G of scratch; at most 0`},
		"no account is no match": {who: slurm(Who{Queue: ""}),
			want: Decision{Image: "micro", MaxCPUs: 4, MaxMemory: 8 * farm.GiB}},
		"as much as there may be": {who: slurm(Who{}),
			wish: Wish{CPUs: 4, Memory: 8 * farm.GiB, Scratch: 1000 * farm.GiB},
			want: Decision{Image: "micro", MaxCPUs: 4, MaxMemory: 8 * farm.GiB}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decide(site, c.who, c.wish)
			if c.denied != "" {
				e := new(farm.Error)
				if !errors.As(err, &e) || e.Kind != farm.Denied || e.Code != farm.CodePolicy ||
					!strings.Contains(e.Message, c.denied) {
					t.Errorf("%v, want a denial that says %q", err, c.denied)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			reasons := cmpopts.IgnoreFields(Decision{}, "Reasons")
			if c.want.Reasons != nil {
				reasons = cmp.Options{}
			}
			if d := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(Decision{}), reasons); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestNoRulesChangeNothing(t *testing.T) {
	w := Wish{Image: "x", Shape: "y", Network: "user", CPUs: 100, Mounts: []string{"/anything"}}
	d, err := Decide(nil, Who{User: "ann"}, w)
	if err != nil || d.Image != "x" || d.Shape != "y" || d.Network != "user" {
		t.Errorf("%+v, %v", d, err)
	}
	s := farm.Shape{CPUs: 100, Memory: farm.TiB, Scratch: farm.TiB}
	if got := d.Cut(s); got.CPUs != s.CPUs || got.Memory != s.Memory || got.Scratch != s.Scratch {
		t.Errorf("cut to %+v", got)
	}
}

func TestCut(t *testing.T) {
	d, err := Decide(site, Who{Groups: []string{"staff"}}, Wish{})
	if err != nil {
		t.Fatal(err)
	}
	got := d.Cut(farm.Shape{CPUs: 64, Memory: farm.TiB, Scratch: farm.TiB})
	if got.CPUs != 16 || got.Memory != farm.GiB || got.Scratch != 0 {
		t.Errorf("%+v", got)
	}
}

func TestNeedsQueue(t *testing.T) {
	if NeedsQueue([]Rule{{Users: []string{"x"}}}) || !NeedsQueue([]Rule{{}, {Queues: []string{"x"}}}) ||
		!NeedsQueue([]Rule{{Accounts: []string{"x"}}}) {
		t.Error("wrong")
	}
}

func TestValidate(t *testing.T) {
	known := []farm.BatchSystem{farm.Slurm, farm.GridEngine, farm.HTCondor}
	for _, r := range site {
		if err := r.Validate(known); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
	}
	for _, r := range []Rule{{Users: []string{"["}}, {Images: []string{""}}, {Systems: []string{"lsf", "moab"}},
		{Mounts: []string{"data"}}, {MaxCPUs: -1}} {
		if r.Validate(known) == nil {
			t.Errorf("%+v is not refused", r)
		}
	}
}

func FuzzDecide(f *testing.F) {
	f.Add("ann", "el9", "/data", 3)
	f.Fuzz(func(t *testing.T, user, image, mount string, cpus int) {
		d, err := Decide(site, Who{User: user, System: farm.Slurm},
			Wish{Image: image, Mounts: []string{mount}, CPUs: cpus})
		if err == nil && (d.Image == "" || image != "" && d.Image != image ||
			d.Cut(farm.Shape{CPUs: cpus}).CPUs != cpus) {
			t.Errorf("%+v", d)
		}
	})
}

// TestGateways: what a bind names must be allowed; without a rule all is, and the decision says nothing.
func TestGateways(t *testing.T) {
	rules := []Rule{{Name: "staff", Users: []string{"ann"}, Gateways: farm.Gateways}, {Name: "silent"},
		{Name: "all", Gateways: []farm.Gateway{farm.FUSE}}}
	asks := func(user string, asked ...farm.Gateway) (Decision, error) {
		return Decide(rules, Who{User: user}, Wish{Mounts: make([]string, len(asked)), Gateways: asked})
	}
	if d, err := asks("ann", farm.Virtiofs, ""); err != nil || !slices.Equal(d.Gateways, farm.Gateways) ||
		!slices.Contains(d.Reasons, `gateways [virtiofs fuse sftp]: rule "staff"`) {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := asks("bob", farm.AnyGateway, "", farm.FUSE); err != nil || len(d.Gateways) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := asks("bob", farm.FUSE, farm.Virtiofs); !farm.IsCode(err, farm.CodePolicy) {
		t.Error(err)
	}
	if d, err := asks("bob"); err != nil || d.Gateways != nil || len(d.Reasons) > 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if err := (Rule{Gateways: []farm.Gateway{farm.AnyGateway}}).Validate(nil); err == nil {
		t.Error("auto is no gateway to allow")
	}
}

// TestOneFilesystem: the first rule that says anything of it counts, as with any other setting.
func TestOneFilesystem(t *testing.T) {
	yes, no := true, false
	rules := []Rule{{Name: "staff", Users: []string{"ann"}, OneFilesystem: &no}, {Name: "silent"},
		{Name: "all", OneFilesystem: &yes}}
	for user, want := range map[string]bool{"ann": false, "bob": true} {
		d, err := Decide(rules, Who{User: user}, Wish{})
		if err != nil || d.OneFilesystem != want ||
			want && !slices.Contains(d.Reasons, `binds without what is mounted below them: rule "all"`) {
			t.Errorf("%s: %+v, %v", user, d, err)
		}
	}
}

// TestSiteNetwork: a network of the site is for whom a rule names it, as usual or among others; also without any rules.
func TestSiteNetwork(t *testing.T) {
	grid := Rule{Name: "pilots", Groups: []string{"grid"}, Network: "grid"}
	more := Rule{Name: "more", Users: []string{"ann"}, Networks: []string{"gr*"}}
	for name, c := range map[string]struct {
		rules []Rule
		who   Who
		wish  string
		want  bool
	}{
		"no rules":    {nil, Who{User: "ann"}, "grid", false},
		"others":      {[]Rule{grid}, Who{User: "bob"}, "grid", false},
		"the usual":   {[]Rule{grid}, Who{Groups: []string{"grid"}}, "grid", true},
		"by a wish":   {[]Rule{more}, Who{User: "ann"}, "grid", true},
		"by no wish":  {[]Rule{grid}, Who{Groups: []string{"grid"}}, "", true},
		"another one": {[]Rule{more}, Who{User: "ann"}, "lan", false},
	} {
		_, err := Decide(c.rules, c.who, Wish{Network: c.wish, SiteNetwork: c.wish != ""})
		if (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
