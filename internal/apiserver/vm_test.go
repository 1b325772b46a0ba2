package apiserver

import (
	"bufio"
	"context"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/accounts"
)

// status is the HTTP status of a problem; 0 of no error.
func status(err error) int {
	if err == nil {
		return 0
	}
	p := new(api.Problem)
	if errors.As(err, &p) {
		return p.Status
	}
	return -1
}

// TestLifeOfAVM by the Go client, with a certificate, against a host that does what it is told.
func TestLifeOfAVM(t *testing.T) {
	l := newLab(t)
	ctx, cancel := context.WithCancel(t.Context())
	host := make(chan struct{})
	go func() { defer close(host); l.host(ctx) }()
	defer func() { cancel(); <-host }()
	c := l.ann()
	request := fleet.VMRequest{Project: "atlas", Name: "web", Count: 2, Image: "micro", Shape: "small",
		Tags: map[string]string{"tier": "front"}, NewKey: true}
	made, err := c.VMs.Create(ctx, "key-1", request)
	if err != nil {
		t.Fatal(err)
	}
	if len(made) != 2 || made[0].Name != "web-1" || made[0].Owner != "ann" ||
		!strings.Contains(made[0].PrivateKey, "PRIVATE KEY") || made[1].PrivateKey != "" {
		t.Fatalf("%+v", made)
	}
	again, err := c.VMs.Create(ctx, "key-1", request)
	if err != nil || len(again) != 2 || again[0].ID != made[0].ID || again[0].PrivateKey != "" {
		t.Errorf("the same once more: %+v, %v", again, err)
	}
	request.Name = "other"
	if _, err := c.VMs.Create(ctx, "key-1", request); status(err) != http.StatusUnprocessableEntity {
		t.Errorf("another request under the same key: %v", err)
	}
	running := l.until(c, made[0].ID, func(v fleet.VM) bool { return v.State == "running" && !v.Pending })
	if running.Host != "wn-1" || !running.Ready || running.Cell != "east" {
		t.Errorf("%+v", running)
	}
	if _, err := c.VMs.Update(ctx, running.ID, fleet.VMUpdate{Tags: &map[string]string{"tier": "back"}},
		running.Revision); err != nil {
		t.Error(err)
	}
	if _, err := c.VMs.Update(ctx, running.ID, fleet.VMUpdate{Tags: &map[string]string{}},
		made[0].Revision); status(err) != http.StatusConflict || !strings.Contains(err.Error(), "vm.update") {
		t.Errorf("an update of what was changed meanwhile: %v", err)
	}
	for _, do := range []struct {
		verb  string
		call  func() (fleet.VM, error)
		state string
	}{
		{"stop", func() (fleet.VM, error) { return c.VMs.Stop(ctx, "atlas/web-1") }, "stopped"},
		{"start", func() (fleet.VM, error) { return c.VMs.Start(ctx, "atlas/web-1") }, "running"},
		{"restart", func() (fleet.VM, error) { return c.VMs.Restart(ctx, "atlas/web-1") }, "running"},
		{"rebuild", func() (fleet.VM, error) {
			return c.VMs.Rebuild(ctx, "atlas/web-1", fleet.VMRebuild{})
		}, "running"},
	} {
		if _, err := do.call(); err != nil {
			t.Errorf("%s: %v", do.verb, err)
		}
		l.until(c, running.ID, func(v fleet.VM) bool { return v.State == do.state && !v.Pending })
	}
	vms, revision, err := c.VMs.List(ctx, fleet.VMFilter{Tags: map[string]string{"tier": "back"}})
	if err != nil || len(vms) != 1 || vms[0].Name != "web-1" || revision == 0 {
		t.Errorf("%+v, %d, %v", vms, revision, err)
	}
	for _, v := range made {
		if _, err := c.VMs.Delete(ctx, v.ID); err != nil {
			t.Error(err)
		}
		l.until(c, v.ID, nil)
	}
}

// until watches a VM until it is as it should be; nil: until it has gone.
func (l *lab) until(c *fleet.Client, id string, done func(fleet.VM) bool) (last fleet.VM) {
	l.t.Helper()
	enough := errors.New("enough")
	after, err := c.Revision(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	last, err = c.VMs.Get(l.t.Context(), id)
	if status(err) == 404 && done == nil || err == nil && done != nil && done(last) {
		return last
	}
	err = c.VMs.Watch(l.t.Context(), fleet.VMFilter{}, after, func(change fleet.Change) error {
		if change.ID != id || change.Deleted && done == nil {
			if change.ID == id {
				return enough
			}
			return nil
		}
		if last, err = change.VM(); err != nil {
			return err
		}
		if done != nil && done(last) {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		l.t.Fatalf("%+v, %v", last, err)
	}
	return last
}

func TestPages(t *testing.T) {
	l := newLab(t)
	c := l.root()
	if _, err := c.VMs.Create(t.Context(), "", fleet.VMRequest{Project: "atlas", Name: "n", Count: 5, Image: "micro",
		Shape: "small"}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for after, pages := "", 0; ; pages++ {
		_, body := l.ask("GET", "/v1/vms?limit=2&after="+after, "")
		var p fleet.Page[fleet.VM]
		if err := json.Unmarshal([]byte(body), &p); err != nil || len(p.Items) > 2 || pages > 3 {
			t.Fatalf("%v: %s", err, body)
		}
		for _, v := range p.Items {
			names = append(names, v.Name)
		}
		if after = p.Next; after == "" {
			break
		}
	}
	if d := cmp.Diff([]string{"n-1", "n-2", "n-3", "n-4", "n-5"}, names); d != "" {
		t.Error(d)
	}
}

func TestCut(t *testing.T) {
	items := []string{"a", "b", "c", "d", "e"}
	same := func(s string) string { return s }
	for _, c := range []struct {
		after string
		limit int
		want  fleet.Page[string]
	}{
		{"", 2, fleet.Page[string]{Items: []string{"a", "b"}, Next: "b"}},
		{"b", 2, fleet.Page[string]{Items: []string{"c", "d"}, Next: "d"}},
		{"bb", 3, fleet.Page[string]{Items: []string{"c", "d", "e"}}}, // what was the last of a page has gone
		{"e", 3, fleet.Page[string]{Items: []string{}}},
		{"", 5, fleet.Page[string]{Items: items}},
	} {
		if d := cmp.Diff(c.want, cut(Paging{After: c.after, Limit: c.limit}, items, same, 0)); d != "" {
			t.Errorf("after %q: %s", c.after, d)
		}
	}
}

// TestWhoSees: nobody is told of VMs that they may not see, neither in lists nor in a watch.
func TestWhoSees(t *testing.T) {
	l := newLab(t)
	if _, err := l.root().VMs.Create(t.Context(), "",
		fleet.VMRequest{Project: "atlas", Name: "secret", Image: "micro", Shape: "small"}); err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]*fleet.Client{
		"nobody": l.client(fleet.Config{Server: l.url}),
		"another authority": l.person(pkix.Name{CommonName: "Ann", Organization: []string{"Grid"}},
			newAuthority(t, "Somebody's CA")),
		"nobody's subject":    l.person(pkix.Name{CommonName: "Eve", Organization: []string{"Grid"}}, l.people),
		"a disabled user":     l.person(pkix.Name{CommonName: "Gone", Organization: []string{"Grid"}}, l.people),
		"no such token":       l.client(fleet.Config{Server: l.url, Token: "grt_aaaa_bbbb"}),
		"a token of no form":  l.client(fleet.Config{Server: l.url, Token: "x"}),
		"a token on a socket": l.client(fleet.Config{Server: "unix://" + l.socket, Token: "grt_aaaa_bbbb"}),
	} {
		if _, _, err := client.VMs.List(t.Context(), fleet.VMFilter{}); status(err) != http.StatusUnauthorized {
			t.Errorf("%s: %v", name, err)
		}
		if v, err := client.Version(t.Context()); err != nil || v.Version != "test" {
			t.Errorf("%s asks for the version: %+v, %v", name, v, err)
		}
	}
	if vms, _, err := l.ann().VMs.List(t.Context(), fleet.VMFilter{}); err != nil || len(vms) != 1 {
		t.Errorf("ann sees %v, %v", vms, err)
	}
}

func TestTooManyTries(t *testing.T) {
	l := newLab(t)
	c := l.client(fleet.Config{Server: l.url, Token: "grt_aaaa_bbbb"})
	var last error
	for range 30 {
		_, _, last = c.VMs.List(t.Context(), fleet.VMFilter{})
	}
	if status(last) != http.StatusTooManyRequests {
		t.Errorf("after 30 wrong tokens: %v", last)
	}
}

// TestWatch: first what there is, then each change; who comes again with the last ID misses nothing; a feed that does
// not reach back says 410.
func TestWatch(t *testing.T) {
	l := newLab(t)
	c := l.root()
	make1 := func(name string) fleet.VM {
		made, err := c.VMs.Create(t.Context(), "",
			fleet.VMRequest{Project: "atlas", Name: name, Image: "micro", Shape: "small"})
		if err != nil {
			t.Fatal(err)
		}
		return made[0]
	}
	first := make1("a")
	stop := errors.New("stop")
	seen := func(after int64, name string) (last int64) {
		err := c.VMs.Watch(t.Context(), fleet.VMFilter{Project: "atlas"}, after, func(change fleet.Change) error {
			v, err := change.VM()
			if err == nil && v.Name == name {
				last, err = change.Revision, stop
			}
			return err
		})
		if !errors.Is(err, stop) {
			t.Fatal(err)
		}
		return last
	}
	last := seen(0, "a")
	second := make1("b")
	seen(last, "b")
	if _, err := c.VMs.Delete(t.Context(), second.ID); err != nil {
		t.Fatal(err)
	}
	if err := c.VMs.Watch(t.Context(), fleet.VMFilter{}, first.Revision+1000, nil); !fleet.Gone(err) {
		t.Errorf("a revision that never was: %v", err)
	}
	answer, _ := l.ask("GET", "/v1/vms?watch", "", "Last-Event-ID", "999999")
	if answer.StatusCode != http.StatusGone {
		t.Errorf("%d", answer.StatusCode)
	}
}

// TestStatus: the counts and the revision are those of the list.
func TestStatus(t *testing.T) {
	l := newLab(t)
	for who, c := range map[string]*fleet.Client{"ann": l.ann(), "root": l.root()} {
		request := fleet.VMRequest{Project: "atlas", Name: who, Count: 3, Image: "micro", Shape: "small"}
		if _, err := c.VMs.Create(t.Context(), "", request); err != nil {
			t.Fatal(err)
		}
		for { // nothing else is written once nobody has any more to say of why there is no host
			vms, before, err := c.VMs.List(t.Context(), fleet.VMFilter{})
			told, err2 := c.Status(t.Context())
			revision, err3 := c.Revision(t.Context())
			if err := errors.Join(err, err2, err3); err != nil {
				t.Fatal(err)
			}
			if revision != before {
				continue
			}
			if d := cmp.Diff(map[string]int{"placing": len(vms)}, told.VMs); d != "" || told.Revision != revision ||
				len(vms) == 0 {
				t.Errorf("%s, at %d and %d (-want +got):\n%s", who, revision, told.Revision, d)
			}
			break
		}
	}
}

// TestWatchEndsWithItsToken: what goes on for long goes on for as long as who asked for it is known.
func TestWatchEndsWithItsToken(t *testing.T) {
	l := newLab(t)
	who := farm.Identity{User: "ann", Means: "certificate"}
	token, text, err := l.server.Accounts.CreateToken(t.Context(), who, accounts.TokenOrder{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", l.url+"/v1/changes", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := l.client(fleet.Config{Server: l.url, Token: text}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body := bufio.NewReader(answer.Body)
	if line, err := body.ReadString('\n'); err != nil || answer.StatusCode != 200 {
		t.Fatalf("%d %q %v", answer.StatusCode, line, err)
	}
	if err := l.server.Accounts.DeleteToken(t.Context(), who, token.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, body); err != nil { // it ends, or the test hangs
		t.Error(err)
	}
}

// TestQuietWatch: a watch without news says that it lives.
func TestQuietWatch(t *testing.T) {
	l := newLab(t)
	r, err := http.NewRequestWithContext(t.Context(), "GET", l.url+"/v1/changes", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := l.ann().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var text string
	for strings.Count(text, ": alive") < 2 {
		var b [64]byte
		n, err := answer.Body.Read(b[:])
		if text += string(b[:n]); err != nil {
			t.Fatalf("%v after %q", err, text)
		}
	}
	if answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Error(fmt.Sprint(answer.Header))
	}
}
