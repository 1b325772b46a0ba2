package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/apiserver"
	"github.com/grange-project/grange/internal/authn"
	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/store"
)

// farmLab is a server on a socket, and a command line that calls it as root.
type farmLab struct {
	t      *testing.T
	dir    string
	socket string
}

func newFarmLab(t *testing.T) *farmLab {
	t.Helper()
	l := &farmLab{t: t, dir: t.TempDir()}
	l.socket = filepath.Join(l.dir, "server.sock")
	st, err := store.Open(t.Context(), filepath.Join(l.dir, "farm.db"))
	if err != nil {
		t.Fatal(err)
	}
	var brokers []string
	for _, k := range systems.All {
		if k.Name != farm.ExecDriver { // which needs a configuration
			brokers = append(brokers, string(k.Name))
		}
	}
	log := slog.New(slog.DiscardHandler)
	s := server.New(server.Options{Store: st, CAKeyFile: filepath.Join(t.TempDir(), "ca.key"), Log: log,
		URL: "https://server.example.org:7480", Brokers: brokers})
	api := apiserver.New(apiserver.Options{Server: s, Log: log,
		Authn: authn.New(authn.Options{Directory: s.Directory()})})
	door, err := apiserver.ListenSocket(l.socket, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- api.Serve(ctx, door) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, st.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("HOME", l.dir)
	t.Setenv("XDG_CONFIG_HOME", l.dir)
	t.Setenv("GRANGE_SERVER", l.socket)
	t.Setenv("GRANGE_TOKEN_FILE", "")
	return l
}

// run is one command: what it printed, and its error.
func (l *farmLab) run(stdin string, args ...string) (string, error) {
	l.t.Helper()
	var out bytes.Buffer
	a := &app.App{Out: &out, Err: &out}
	root := grange(a)
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out) // of completion
	err := root.ExecuteContext(l.t.Context())
	return out.String(), err
}

func (l *farmLab) must(args ...string) string {
	l.t.Helper()
	out, err := l.run("", args...)
	if err != nil {
		l.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out
}

func (l *farmLab) file(name, text string) string {
	path := filepath.Join(l.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	return path
}

func TestFarmFromFileToFile(t *testing.T) {
	l := newFarmLab(t)
	if out := l.must("cell", "list"); !strings.Contains(out, "no cells") {
		t.Error(out)
	}
	example := filepath.Join("..", "..", "packaging", "cells.toml")
	if out := l.must("diff", "-f", example); !strings.Contains(out, "+ cell atlas-io\n") ||
		!strings.Contains(out, "  project staff: new VMs would go to [geneva-1 geneva-2]\n") {
		t.Error(out)
	}
	if out := l.must("apply", "-f", example); !strings.HasSuffix(out, "\n18 made, 1 changed, 0 deleted\n") {
		t.Error(out)
	}
	exported := l.must("export")
	if out := l.must("diff", "-f", l.file("again.toml", exported), "--prune",
		"--exit-code"); out != "no changes: the farm is as the file says\n" {
		t.Errorf("an export differs from what was exported:\n%s\n%s", out, exported)
	}
	closed := l.file("closed.toml", strings.Replace(exported, "[cells.atlas-io]\n",
		"[cells.atlas-io]\nopen = false\nreason = 'disks'\n", 1))
	out, err := l.run("", "diff", "-f", closed, "--exit-code")
	const want = `~ cell atlas-io
    closed: - → true
    reason: - → disks

For whom:
  project atlas could make no VMs any more: the one cell that is for it takes none: atlas-io is closed (disks)

0 to make, 1 to change, 0 to delete. Exactly this: grange apply -f `
	var status app.ExitError
	if !errors.As(err, &status) || status.Status != app.ExitDiffers || !strings.HasPrefix(out, want) {
		t.Errorf("%v (-want +got):\n%s", err, cmp.Diff(want, out))
	}
	_, plan, _ := strings.Cut(strings.TrimSpace(out), "--plan ")
	l.must("cell", "close", "atlas-io", "--reason", "other")
	if _, err := l.run("", "apply", "-f", closed, "--plan", plan); app.CodeOf(err) != "other-plan" {
		t.Errorf("another plan than was shown: %v", err)
	}
	l.must("apply", "-f", closed)
	if out := l.must("project", "show", "atlas"); !strings.Contains(out, "nowhere") ||
		!strings.Contains(out, "atlas-io is closed (disks)") {
		t.Error(out)
	}
	if out := l.must("cell", "open", "atlas-io"); !strings.Contains(out, "new VMs            open") {
		t.Error(out)
	}
	if _, err := l.run("[cells.x]\nopne = true\n", "diff", "-f", "-"); app.CodeOf(err) != "bad-farm" ||
		!strings.Contains(err.Error(), "standard input: line 2: unknown key") {
		t.Error(err)
	}
}

func TestTokensAndRolesOnTheCommandLine(t *testing.T) {
	l := newFarmLab(t)
	l.must("apply", "-f", filepath.Join("..", "..", "packaging", "cells.toml"))
	out := l.must("token", "create", "--user", "ann", "--project", "atlas", "--expires", "1d", "--json")
	_, rest, _ := strings.Cut(out, `"secret": "`)
	secret, _, _ := strings.Cut(rest, `"`)
	if !strings.HasPrefix(secret, "grt_") {
		t.Fatal(out)
	}
	file := l.file("token", secret+"\n")
	t.Setenv("GRANGE_TOKEN_FILE", file)
	if out := l.must("auth", "whoami"); !strings.Contains(out, "user     ann\n") ||
		!strings.Contains(out, "only in  atlas\n") {
		t.Error(out)
	}
	// an operator of the cell, by a token for a project alone
	if _, err := l.run("", "cell", "close", "atlas-io"); app.CodeOf(err) != "no-role" {
		t.Error(err)
	}
	if out := l.must("auth", "explain", "cell.close", "cell:atlas-io"); !strings.HasPrefix(out,
		"ann may not cell.close on cell:atlas-io\n") || !strings.Contains(out, "the token is for project atlas only") {
		t.Error(out)
	}
	if out := l.must("audit", "list", "--project", "atlas", "--who", "ann"); !strings.Contains(out, "no entries") {
		t.Error(out)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := l.run("", "auth", "whoami"); app.CodeOf(err) != "bad-token-file" {
		t.Error(err)
	}
	t.Setenv("GRANGE_TOKEN_FILE", "")
	id, _, _ := strings.Cut(strings.TrimPrefix(secret, "grt_"), "_")
	if out := l.must("token", "list"); !strings.Contains(out, id) || strings.Contains(out, secret) {
		t.Error(out)
	}
	l.must("token", "revoke", id)
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GRANGE_TOKEN_FILE", file)
	if _, err := l.run("", "auth", "whoami"); app.CodeOf(err) != "not-known" {
		t.Errorf("a token that was taken back: %v", err)
	}
	t.Setenv("GRANGE_TOKEN_FILE", "")
	if out := l.must("audit", "list", "--who", "ann"); !strings.Contains(out, "cell.close") ||
		!strings.Contains(out, "denied") {
		t.Error(out)
	}
}

func TestJoinTokensAreTakenBack(t *testing.T) {
	l := newFarmLab(t)
	l.must("apply", "-f", filepath.Join("..", "..", "packaging", "cells.toml"))
	id, _, _ := strings.Cut(strings.TrimPrefix(l.must("host", "token", "create", "--cell", "atlas-io", "--count", "40"),
		"grange-join-"), "-")
	if out := l.must("host", "token", "list"); !strings.Contains(out, id) || !strings.Contains(out, "0 of 40") {
		t.Error(out)
	}
	if out := l.must("host", "token", "revoke", id); out != id+" revoked\n" {
		t.Error(out)
	}
	if out := l.must("host", "token", "list"); strings.Contains(out, id) {
		t.Error(out)
	}
	if _, err := l.run("", "host", "token", "revoke", id); app.CodeOf(err) != "no-token" {
		t.Error(err)
	}
}

func TestUsersGroupsAndCatalogueOnTheCommandLine(t *testing.T) {
	l := newFarmLab(t)
	l.must("apply", "-f", filepath.Join("..", "..", "packaging", "cells.toml"))
	for _, c := range []struct {
		args string
		want string // in what it prints, or the code of its error
	}{
		{"user set eve --subject=CN=Eve,O=Grid,C=CH", "user eve: 1 certificate\n"},
		{"user set eve --subject /C=CH/O=Grid/CN=Eve2 --disable", "user eve: 2 certificates, disabled\n"},
		{"user set eve --enable --without-subject CN=Eve2,O=Grid,C=CH", "user eve: 1 certificate\n"},
		{"user set eve --enable --disable", "usage"},
		{"user grant eve member --project atlas", "user eve: member of atlas\n"},
		{"user grant eve operator --cell atlas-io", "operator of cell atlas-io"},
		{"user grant eve king", "bad-farm"},
		{"user grant eve member --project atlas --cell atlas-io", "usage"},
		{"user revoke eve member --project atlas", "user eve: operator of cell atlas-io\n"},
		{"user revoke eve member --project atlas", "no-grant"},
		{"user list", "CN=Eve,O=Grid,C=CH"},
		{"user delete eve", "eve deleted\n"},
		{"user delete eve", "no-user"},
		{"group create atlas/db --affinity anti-affinity", "atlas/db  anti-affinity  -\n"},
		{"group create atlas/db --affinity soft-affinity --replace", "atlas/db  soft-affinity  -\n"},
		{"group create db --affinity affinity", "usage"},
		{"group list", "atlas/db"},
		{"group delete atlas/db", "atlas/db deleted\n"},
		{"group delete atlas/db", "no-group"},
		{"group delete atlas/db --json", "no-group"},
		{"shape list", "small"},
		{"network list", "NETWORK"},
		{"image list --fleet", "no host has an image"},
		{"token revoke none", "no-token"},
	} {
		out, err := l.run("", strings.Fields(c.args)...)
		if err != nil && app.CodeOf(err) != c.want || err == nil && !strings.Contains(out, c.want) {
			t.Errorf("%s: %v\n%s", c.args, err, out)
		}
	}
}

func TestWatchOnTheCommandLine(t *testing.T) {
	l := newFarmLab(t)
	l.must("apply", "-f", filepath.Join("..", "..", "packaging", "cells.toml"))
	for _, c := range []struct{ args, want string }{{"watch --kind cell", `  cell atlas-io `},
		{"watch --kind cell --json", `"kind":"cell","id":"atlas-io","object":{`}} {
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		a := &app.App{Out: w, Err: w}
		root := grange(a)
		root.SetArgs(strings.Fields(c.args))
		ended := make(chan error, 1)
		go func() { ended <- root.ExecuteContext(ctx) }()
		heard := make(chan string)
		go func() {
			lines := bufio.NewScanner(r)
			lines.Scan()
			heard <- lines.Text()
			io.Copy(io.Discard, r)
		}()
		line := ""
		// until the watch has begun
		for verb := "close"; line == ""; verb = map[string]string{"close": "open", "open": "close"}[verb] {
			l.must("cell", verb, "atlas-io")
			select {
			case line = <-heard:
			default:
			}
		}
		if !strings.Contains(line, c.want) {
			t.Errorf("%s: %s", c.args, line)
		}
		cancel()
		if err := <-ended; !errors.As(err, new(app.ExitError)) {
			t.Errorf("%s: %v", c.args, err)
		}
		w.Close()
	}
	if _, err := l.run("", "watch", "--kind", "moon"); app.CodeOf(err) != "usage" {
		t.Error(err)
	}
}

func TestVMUpdateOnTheCommandLine(t *testing.T) {
	l := newFarmLab(t)
	l.must("apply", "-f", filepath.Join("..", "..", "packaging", "cells.toml"))
	l.must("vm", "create", "-p", "atlas", "-i", "el9", "-s", "small", "-n", "web", "--new-key", "--tag", "a=1,b=2")
	for _, c := range []struct {
		args string
		want []string // in what show prints then, or the code of the error
	}{
		{"--tag b=3,c=4 --expires 2d", []string{"tags     a=1, b=3, c=4\n", "\nexpires "}},
		{"--tag a=", []string{"tags     b=3, c=4\n", "\nexpires "}},
		{"--expires tomorrow", []string{"usage"}},
		{"", []string{"usage"}},
	} {
		_, err := l.run("", append([]string{"vm", "update", "atlas/web"}, strings.Fields(c.args)...)...)
		if err != nil {
			if app.CodeOf(err) != c.want[0] {
				t.Errorf("%q: %v", c.args, err)
			}
			continue
		}
		out := l.must("vm", "show", "atlas/web")
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%q: no %q in\n%s", c.args, want, out)
			}
		}
	}
}

// The import of nova's words needs no server, and what it writes is a farm that can be applied.
func TestCellImport(t *testing.T) {
	l := newFarmLab(t)
	nova := l.file("nova.conf", "[cells]\ncells_default = cellA, cellB\ncells_projects = cellE:u1 ; u2,cellF:u3\n")
	out := l.must("cell", "import", "--nova", nova, "--cells", "cellA,cellB,cellD,cellE,cellF", "--rename", "u1=atlas")
	l.must("apply", "-f", l.file("imported.toml", out))
	if out := l.must("project", "list"); !strings.Contains(out, "cellE") {
		t.Error(out)
	}
	if out := l.must("cell", "list"); !strings.Contains(out, "cellD  closed") {
		t.Error(out)
	}
	for _, args := range [][]string{{"cell", "import"}, {"cell", "import", "--nova", nova, "--cells-default", "a"},
		{"cell", "import", "--nova", "/nonexistent"}} {
		if _, err := l.run("", args...); app.CodeOf(err) != "usage" {
			t.Errorf("%v: %v", args, err)
		}
	}
}
