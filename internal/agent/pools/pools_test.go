package pools

import (
	"errors"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
)

var all = []config.Pool{
	{Name: "open", Rule: policy.Rule{Name: "pool open", Systems: []string{"none"}, Image: "el9",
		Images: []string{"el9"}, MaxCPUs: 2}, AtOnce: 3, PerUser: 2, Home: true},
	{Name: "staff", Rule: policy.Rule{Name: "pool staff", Systems: []string{"none"}, Groups: []string{"staff"}}},
	{Name: "batch", Batch: farm.Slurm, Rule: policy.Rule{Name: "pool batch", Systems: []string{"slurm"}}},
}

func codeOf(err error) farm.Code {
	if own, ok := errors.AsType[*farm.Error](err); ok {
		return own.Code
	}
	return ""
}

// TestMay: whom pools are for, and from where.
func TestMay(t *testing.T) {
	user, staff := policy.Who{User: "ann"}, policy.Who{User: "bob", Groups: []string{"staff"}}
	job := policy.Who{User: "ann", System: farm.Slurm}
	for _, c := range []struct {
		pool string
		who  policy.Who
		want farm.Code
	}{{"", user, ""}, {"open", user, ""}, {"none", user, CodeNoPool}, {"staff", user, CodeNoPool}, {"staff", staff, ""},
		{"batch", user, farm.CodePolicy}, {"batch", job, ""}, {"open", job, farm.CodePolicy}} {
		if err := May(all, c.pool, c.who); codeOf(err) != c.want {
			t.Errorf("pool %q for %+v: %v, want %q", c.pool, c.who, err, c.want)
		}
	}
}

// TestRules: a pool's word goes before the site's, and what the site denies it denies in a pool, too.
func TestRules(t *testing.T) {
	site := []policy.Rule{{Name: "site", Image: "el8", MaxCPUs: 16}}
	decide := func(pool string, wish policy.Wish, site []policy.Rule) (policy.Decision, error) {
		rules, err := Rules(all, pool, site)
		if err != nil {
			t.Fatal(err)
		}
		return policy.Decide(rules, policy.Who{User: "ann"}, wish)
	}
	if d, err := decide("open", policy.Wish{}, site); err != nil || d.Image != "el9" || d.MaxCPUs != 2 {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := decide("", policy.Wish{}, site); err != nil || d.Image != "el8" || d.MaxCPUs != 16 {
		t.Errorf("outside of pools: %+v, %v", d, err)
	}
	for _, w := range []policy.Wish{{Image: "el8"}, {CPUs: 3}} {
		if _, err := decide("open", w, site); codeOf(err) != farm.CodePolicy ||
			!strings.Contains(err.Error(), `"pool open"`) {
			t.Errorf("%+v: %v", w, err)
		}
	}
	if _, err := decide("open", policy.Wish{}, []policy.Rule{{Name: "closed", Deny: "for repair"}}); err == nil {
		t.Error("the site's denial does not hold in a pool")
	}
	if _, err := Rules(all, "none", site); codeOf(err) != CodeNoPool {
		t.Error(err)
	}
}

func TestRoom(t *testing.T) {
	for _, c := range []struct {
		pool  string
		users []uint32
		full  bool
	}{{"open", nil, false}, {"open", []uint32{7}, false}, {"open", []uint32{7, 7}, true},
		{"open", []uint32{7, 8}, false}, {"open", []uint32{8, 9, 9}, true}, {"staff", []uint32{7, 7, 7}, false}, {"gone", []uint32{7}, false},
		{"", []uint32{7, 7, 7}, false}} {
		if err := Room(all, c.pool, 7, c.users); (codeOf(err) == CodePoolFull) != c.full || err != nil && !c.full {
			t.Errorf("pool %q of %v: %v", c.pool, c.users, err)
		}
	}
}

// TestView shows people what they may use, also where they need a batch system for it.
func TestView(t *testing.T) {
	shown, err := View(all, func([]policy.Rule) (policy.Who, error) { return policy.Who{User: "ann"}, nil },
		map[string][]uint32{"open": {7, 8}, "": {9}})
	if err != nil || len(shown) != 2 || shown[0].Name != "open" || shown[0].VMs != 2 || shown[1].Batch != "slurm" {
		t.Errorf("%+v, %v", shown, err)
	}
	if !HasHome(all, "open") || HasHome(all, "staff") || HasHome(all, "") {
		t.Error("homes are mixed up")
	}
}
