package runner

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// TestPoolBinds: a VM of a pool has the home directory and what the site binds, as far as it is there, and starts in
// the home directory where nothing else is said.
func TestPoolBinds(t *testing.T) {
	home, site, away := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Chdir(away)
	grant := api.Grant{Home: true, Binds: []string{site + ":/site:ro", filepath.Join(site, "none")}}
	for name, c := range map[string]struct {
		request api.JobRequest
		own     []farm.Bind
		dir     string
	}{
		"home":            {dir: home},
		"chosen":          {request: api.JobRequest{Dir: "/opt"}, dir: "/opt"},
		"where we are":    {own: []farm.Bind{{Source: away, Target: "/away"}}, dir: "/away"},
		"home of our own": {own: []farm.Bind{{Source: away, Target: home}}, dir: home},
	} {
		c.request.Pool = "p"
		j, err := New(c.request, Options{Binds: c.own})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.takeBinds(grant); err != nil || j.request.Dir != c.dir {
			t.Errorf("%s: starts in %s, not in %s; %v", name, j.request.Dir, c.dir, err)
		}
		var got []string
		for _, b := range j.request.Binds {
			got = append(got, b.Target)
		}
		if !slices.Contains(got, home) || !slices.Contains(got, "/site") ||
			len(got) != 2+len(c.own)-count(c.own, home) {
			t.Errorf("%s: binds %q", name, got)
		}
	}
}

// count is how many binds have a target.
func count(binds []farm.Bind, target string) (n int) {
	for _, b := range binds {
		if b.Target == target {
			n++
		}
	}
	return n
}

// TestPoolIsNotHandedOn: what a session submits is not of its pool.
func TestPoolIsNotHandedOn(t *testing.T) {
	t.Setenv(PoolVariable, "p")
	j := newJob(t, Options{})
	if slices.ContainsFunc(j.request.Env, func(kv string) bool { return strings.HasPrefix(kv, PoolVariable) }) {
		t.Error("the VM has the pool's variable")
	}
	if j.request.Pool != "" {
		t.Error("what is no batch job takes its pool from a variable")
	}
}

// TestLimitsAreTold: warnings of limits are printed, whatever else is not, and the last one ends the command as its
// terminal would.
func TestLimitsAreTold(t *testing.T) {
	var out bytes.Buffer
	j := newJob(t, Options{Notes: &out, Stdin: os.Stdin})
	j.takeMore = func() {}
	for code, text := range map[string]string{api.CodePoolWarning: "five minutes", api.CodePoolEnds: "now"} {
		if err := j.event(api.JobEvent{Event: api.EventWarning, Code: code, Message: text}); err != nil {
			t.Fatal(err)
		}
	}
	if got := out.String(); !strings.Contains(got, "grange: five minutes\n") || !strings.Contains(got, "grange: now\n") {
		t.Errorf("printed %q", got)
	}
}
