package pages

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/apiserver"
	"github.com/grange-project/grange/internal/authn"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/server/accounts"
	"github.com/grange-project/grange/internal/sim"
	"github.com/grange-project/grange/internal/store"
)

// lab is a server with pages: cell east with a host, project atlas, ann who is a member of it, eve who is of none.
type lab struct {
	t      *testing.T
	url    string
	client *http.Client
	store  *store.Store
	tokens map[string]string
}

// imageDigest is that of the image debian-13.
var imageDigest = "sha256:" + strings.Repeat("a", 64)

func newLab(t *testing.T) *lab {
	t.Helper()
	lan, err := farm.ParseAddressPool("10.0.0.10-10.0.0.20/24")
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "farm.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	s := server.New(server.Options{Store: st, Log: log, URL: "https://server.example.org:7480",
		CAKeyFile: filepath.Join(t.TempDir(), "ca.key")})
	topology := sim.Hardware{Sockets: 2, Cores: 4, Memory: 64 * farm.GiB}.Topology()
	_, err = st.Update(t.Context(), func(tx *store.Tx) error {
		return errors.Join(tx.PutCell(farm.Cell{Name: "east", Default: true}.WithDefaults()),
			tx.PutCell(farm.Cell{Name: "west"}.WithDefaults()), tx.PutProject(farm.Project{Name: "atlas",
				Quota: farm.Quota{VMs: 5}, Networks: []string{"lan"}}),
			tx.PutNetwork(farm.FleetNetwork{Name: "lan", Bridge: "br0", Isolate: true,
				Addresses: []farm.AddressPool{lan}}),
			store.ImagesOf(tx).Put(farm.FleetImage{Digest: imageDigest, Kind: "disk", Format: "qcow2", Size: farm.GiB,
				MinMemory: 2 * farm.GiB, State: farm.ImageDeprecated, Successor: "debian-14", Reason: "<old>",
				Created: time.Now()}),
			store.ImagesOf(tx).PutName(farm.ImageName{Name: "debian-13", Digest: imageDigest,
				Versions: []farm.ImageVersion{{Digest: imageDigest, By: "root"}}}),
			tx.PutShape(farm.Shape{Name: "small", CPUs: 2, Memory: farm.GiB, Network: farm.NetworkNone}),
			tx.PutUser(farm.User{Name: "ann"}), tx.PutUser(farm.User{Name: "eve"}), tx.PutUser(farm.User{Name: "otto"}),
			tx.PutGrant(farm.Grant{User: "ann", Role: farm.RoleMember, Project: "atlas"}),
			tx.PutGrant(farm.Grant{User: "otto", Role: farm.RoleOperator, Cell: "east"}),
			tx.InsertHost(farm.Host{ID: api.NewID(), Name: "h1", Cell: "east", Seen: time.Now(),
				Facts: farm.Facts{Topology: topology, Kind: "amd", Images: []string{"micro"}}}),
			tx.InsertHost(farm.Host{ID: api.NewID(), Name: "h2", Cell: "west", Seen: time.Now(),
				Facts: farm.Facts{Topology: topology, Kind: "intel"}}))
	})
	if err != nil {
		t.Fatal(err)
	}
	a := apiserver.New(apiserver.Options{Server: s, Log: log, Authn: authn.New(authn.Options{Directory: s.Directory()}),
		Pages: New(Options{Server: s, Log: log, Version: "test"})})
	web := httptest.NewServer(a)
	t.Cleanup(web.Close)
	l := &lab{t: t, url: web.URL, store: st, tokens: map[string]string{}, client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	root := farm.Identity{Root: true, Means: "socket"}
	for _, user := range []string{"ann", "eve", "otto"} {
		_, l.tokens[user], err = s.Accounts.CreateToken(t.Context(), root, accounts.TokenOrder{User: user})
		if err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// as asks for a page as somebody; a form is posted.
func (l *lab) as(user, path string, form url.Values) (status int, body string, header http.Header) {
	l.t.Helper()
	method, text := http.MethodGet, ""
	if form != nil {
		method, text = http.MethodPost, form.Encode()
	}
	r, err := http.NewRequestWithContext(l.t.Context(), method, l.url+path, strings.NewReader(text))
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if token := l.tokens[user]; token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := l.client.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return answer.StatusCode, string(all), answer.Header
}

func (l *lab) shows(user, path string, want ...string) {
	l.t.Helper()
	status, body, _ := l.as(user, path, nil)
	if status != http.StatusOK {
		l.t.Errorf("%s of %s: %d\n%s", path, user, status, body)
	}
	for _, w := range want {
		if !strings.Contains(body, w) {
			l.t.Errorf("%s of %s has no %q:\n%s", path, user, w, body)
		}
	}
}

// nextLink leads from a part of a list to the one behind it.
var nextLink = regexp.MustCompile(`<a href="([^"]+)">(?:Next|Older)</a>`)

// eachOnce walks through all parts of a list: so many things must be on them, each on one.
func (l *lab) eachOnce(user, path string, thing *regexp.Regexp, things int) {
	l.t.Helper()
	seen := map[string]int{}
	for pages := 0; path != ""; pages++ {
		_, body, _ := l.as(user, path, nil)
		for _, one := range thing.FindAllString(body, -1) {
			seen[one]++
		}
		path = ""
		if m := nextLink.FindStringSubmatch(body); m != nil {
			path = strings.ReplaceAll(m[1], "&amp;", "&")
		}
		if pages > 3 {
			l.t.Fatal("pages without an end")
		}
	}
	if len(seen) != things {
		l.t.Errorf("%d on all pages, not %d", len(seen), things)
	}
	for one, n := range seen {
		if n != 1 {
			l.t.Errorf("%s is there %d times", one, n)
		}
	}
}

// TestLife: a VM from the form to its end, by forms alone.
func TestLife(t *testing.T) {
	l := newLab(t)
	l.shows("ann", "/vms/new?shape=small", "Where it could run", "2 vCPUs", `value="small" selected`)
	form := url.Values{"name": {"web"}, "project": {"atlas"}, "image": {"micro"}, "shape": {"small"}}
	status, body, header := l.as("ann", "/vms/new", form)
	if status != http.StatusSeeOther || header.Get("Location") != "/vms/atlas/web" {
		t.Fatalf("the form is answered by %d to %q\n%s", status, header.Get("Location"), body)
	}
	l.shows("ann", "/vms", "atlas/</span>web", "placing")
	l.shows("ann", "/vms/atlas/web", "placing", "/vms/atlas/web/delete")
	if status, body, _ := l.as("ann", "/vms/new", form); status != http.StatusConflict ||
		!strings.Contains(body, "there is a VM atlas/web already") || !strings.Contains(body, `value="web"`) {
		t.Errorf("the same once more: %d\n%s", status, body)
	}
	if status, body, _ := l.as("ann", "/vms/atlas/web/stop", url.Values{}); status != http.StatusConflict ||
		!strings.Contains(body, "cannot be stopped") {
		t.Errorf("stopped while it has no host: %d\n%s", status, body)
	}
	l.shows("ann", "/vms/atlas/web/delete", "for good")
	if status, _, header := l.as("ann", "/vms/atlas/web/delete", url.Values{"back": {"//evil.example"}}); status !=
		http.StatusSeeOther || header.Get("Location") != "/vms" {
		t.Errorf("deleted: %d to %q", status, header.Get("Location"))
	}
	if status, _, _ := l.as("ann", "/vms/atlas/web", nil); status != http.StatusNotFound {
		t.Errorf("what is gone is answered by %d", status)
	}
}

// TestWhoSeesWhat: pages show what the caller may see, and who is not known sees none.
func TestWhoSeesWhat(t *testing.T) {
	l := newLab(t)
	l.shows("otto", "/farm", "h1", "amd")
	if _, body, _ := l.as("otto", "/farm", nil); strings.Contains(body, "/hosts/h2") {
		t.Error("an operator of east sees hosts of west")
	}
	if _, body, _ := l.as("otto", "/farm/hosts.json", nil); !strings.Contains(body, `"name":["h1"]`) {
		t.Errorf("the map of an operator of east: %s", body)
	}
	l.shows("otto", "/hosts/h1", "host-chart", "node 1")
	for path, want := range map[string]int{"/vms": http.StatusUnauthorized, "/hosts/h1": http.StatusUnauthorized} {
		if status, body, _ := l.as("", path, nil); status != want || !strings.Contains(body, "Please sign in") {
			t.Errorf("%s of nobody: %d\n%s", path, status, body)
		}
	}
	if status, _, _ := l.as("eve", "/hosts/h1", nil); status != http.StatusForbidden {
		t.Errorf("a host's page of eve: %d", status)
	}
	if status, body, _ := l.as("ann", "/hosts/h1/drain", url.Values{}); status != http.StatusForbidden {
		t.Errorf("a member drains a host: %d\n%s", status, body)
	}
	if status, _, _ := l.as("otto", "/hosts/*/drain", url.Values{}); status != http.StatusNotFound {
		t.Errorf("all hosts are drained by a pattern: %d", status)
	}
	if status, body, _ := l.as("otto", "/hosts/h1/drain", url.Values{"reason": {"<b>disks</b>"}}); status != 303 {
		t.Errorf("drained: %d\n%s", status, body)
	}
	l.shows("otto", "/hosts/h1", "&lt;b&gt;disks&lt;/b&gt;", "draining")
}

// TestCatalogue: what there is to make VMs of and for, and who did what.
func TestCatalogue(t *testing.T) {
	l := newLab(t)
	l.as("ann", "/vms/new", url.Values{"name": {"web"}, "project": {"atlas"}, "image": {"micro"}, "shape": {"small"}})
	l.shows("ann", "/projects", "atlas", "1 of 5", "<span>VMs</span>", "New VMs go to east", "networks lan")
	l.shows("eve", "/projects", "no projects that you may see")
	l.shows("ann", "/networks", "lan", "bridge:br0", "10.0.0.10-10.0.0.20/24", "do not reach each other")
	l.shows("ann", "/images", "debian-13", "deprecated", "use debian-14", "/images/debian-13")
	l.shows("ann", "/images/"+imageDigest, "debian-13", "&lt;old&gt;; use debian-14", "2G of memory", "0 hosts with it")
	l.shows("ann", "/images/debian-13", imageDigest, "What the name has meant")
	if status, _, _ := l.as("ann", "/images/sha256:"+strings.Repeat("0", 64), nil); status != http.StatusNotFound {
		t.Errorf("an image that there is not: %d", status)
	}
	l.shows("ann", "/log?who=ann", "vm.create", "atlas/web", `class="state good">done`)
	l.shows("ann", "/log", `value="ann"`, "atlas/web")
	l.shows("eve", "/log", `value="eve"`, "by this filter")
	if status, body, _ := l.as("eve", "/log?project=atlas", nil); status != http.StatusForbidden {
		t.Errorf("somebody of no project reads what is done in it: %d\n%s", status, body)
	}
}

// TestHeaders: nothing that is written into a page runs, and assets may be kept for good.
func TestHeaders(t *testing.T) {
	l := newLab(t)
	_, body, header := l.as("ann", "/vms", nil)
	if csp := header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") ||
		strings.Contains(csp, "unsafe") {
		t.Errorf("policy %q", csp)
	}
	for _, m := range regexp.MustCompile(`(?:href|src)="(/assets/[^"]+)"`).FindAllStringSubmatch(body, -1) {
		status, text, header := l.as("", m[1], nil)
		if status != http.StatusOK || text == "" || !strings.Contains(header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d, %q", m[1], status, header.Get("Cache-Control"))
		}
	}
	for path, want := range map[string]int{"/assets/style.css": 200, "/assets/plex-sans.woff2": 200,
		"/assets/x/grange.css": 200, "/assets/": 404, "/assets/x/nothing.css": 404, "/assets/templates": 404} {
		if status, _, header := l.as("", path, nil); status != want ||
			strings.Contains(header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d, %q", path, status, header.Get("Cache-Control"))
		}
	}
}

// TestNothingIsInline: the policy would keep browsers from it.
func TestNothingIsInline(t *testing.T) {
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil || len(names) < 5 {
		t.Fatal(names, err)
	}
	inline := regexp.MustCompile(`(?i)\sstyle=|<style|<script(>|\s+[^>]*>[^<])|\son[a-z]+=|javascript:|https?://`)
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if found := inline.Find(text); found != nil {
			t.Errorf("%s has %q", name, found)
		}
	}
}

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0 s", -time.Hour: "0 s", 90 * time.Second: "1 min",
		time.Hour: "1 h", 25*time.Hour + 59*time.Minute: "1 d 1 h", 90 * time.Minute: "1 h 30 min", 400 * 24 * time.Hour: "400 d"} {
		if got := span(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	if got := hint("try `a<b`, or c"); got != "try <code>a&lt;b</code>, or c" {
		t.Errorf("a hint is %q", got)
	}
	for path, want := range map[string]string{"/vms?of=all": "/vms?of=all", "//evil.example": "/vms",
		"https://evil.example/": "/vms", `/\evil.example`: "/vms", "": "/vms", "vms": "/vms"} {
		if got := apiserver.LocalPath(path, "/vms"); got != want {
			t.Errorf("%q leads to %q, want %q", path, got, want)
		}
	}
	for text, want := range map[string]string{"": "0001-01-01T00:00:00Z", "2026-12-31": "2026-12-31T23:59:59Z",
		"2026-12-31T18:00": "2026-12-31T18:00:00Z", "soon": ""} {
		at, err := parseExpiry(text)
		if (err != nil) != (want == "") || err == nil && stamp(at) != want {
			t.Errorf("%q is %v, %v", text, at, err)
		}
	}
	if share(1, 100000) != 1 || share(0, 5) != 0 || share(7, 5) != 100 || share(1, 0) != 0 {
		t.Error("shares are wrong")
	}
}
