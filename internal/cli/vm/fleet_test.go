package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/apiserver"
	"github.com/grange-project/grange/internal/authn"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/store"
)

// fleetLab is a server without hosts, and the command line of its root. The user has no SSH key and no configuration.
type fleetLab struct {
	t      *testing.T
	socket string
}

func newFleetLab(t *testing.T) *fleetLab {
	t.Helper()
	home := t.TempDir()
	for name, value := range map[string]string{"HOME": home, "XDG_CONFIG_HOME": "", "XDG_DATA_HOME": "",
		"GRANGE_SERVER": "", "GRANGE_PROJECT": "", "GRANGE_SOCKET": "", "GRANGE_TOKEN_FILE": ""} {
		t.Setenv(name, value)
	}
	st, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "farm.db"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = st.Update(t.Context(), func(tx *store.Tx) error {
		return errors.Join(tx.PutCell(farm.Cell{Name: "east", Default: true}.WithDefaults()),
			tx.PutProject(farm.Project{Name: "atlas"}), tx.PutProject(farm.Project{Name: "cms"}),
			tx.PutShape(farm.Shape{Name: "small", CPUs: 1, Memory: 512 * farm.MiB, Network: farm.NetworkNone}))
	})
	if err != nil {
		t.Fatal(err)
	}
	l := &fleetLab{t: t, socket: filepath.Join(t.TempDir(), "server.sock")}
	listener, err := apiserver.ListenSocket(l.socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	s := server.New(server.Options{Store: st, CAKeyFile: filepath.Join(t.TempDir(), "ca.key"), Log: log,
		URL: "https://server.example.org"})
	api := apiserver.New(apiserver.Options{Server: s, Log: log,
		Authn: authn.New(authn.Options{Directory: s.Directory()})})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- s.Run(ctx) }()
	go func() { ended <- api.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		<-ended
		st.Close()
	})
	return l
}

// run is one command line: its output and the code of its error.
func (l *fleetLab) run(args ...string) (out, code string) {
	l.t.Helper()
	var b bytes.Buffer
	a := &app.App{Out: &b, Err: l.t.Output()}
	root := a.Tree(app.Group{Title: "Virtual machines", Commands: Commands(a)})
	root.SetOut(&b)
	root.SetArgs(append([]string{"--server", l.socket}, args...))
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	_, err := root.ExecuteContextC(ctx)
	return b.String(), app.CodeOf(err)
}

// names are those of the VMs that are listed.
func (l *fleetLab) names(args ...string) (names []string) {
	l.t.Helper()
	out, code := l.run(append([]string{"vm", "list", "--json"}, args...)...)
	var vms []fleet.VM
	if err := json.Unmarshal([]byte(out), &vms); err != nil || code != "" {
		l.t.Fatalf("%s %v: %s", code, err, out)
	}
	for _, v := range vms {
		names = append(names, fullName(v))
	}
	return names
}

// TestCreateExistingGroup: `create` of a name that exists fails, and changes nothing without --replace.
func TestCreateExistingGroup(t *testing.T) {
	l := newFleetLab(t)
	for _, c := range []struct{ line, code, says string }{
		{"security-group create atlas/web --rule=in", "bad-security-rule", ""},
		{"security-group create atlas/web", "", "nothing passes"},
		{"security-group rule add atlas/web in tcp 443", "", "in tcp 443"},
		{"security-group create atlas/web", "exists", ""},
		{"security-group show atlas/web", "", "in tcp 443"},
		{"security-group create atlas/web --replace", "", "nothing passes"},
		{"security-group create atlas/new --replace", "", "nothing passes"},
		{"group create atlas/ha --affinity affinity", "", "affinity"},
		{"group create atlas/ha --affinity anti-affinity", "exists", ""},
		{"group list", "", "atlas/ha  affinity"},
		{"group create atlas/ha --affinity anti-affinity --replace", "", "anti-affinity"},
	} {
		out, code := l.run(strings.Fields(c.line)...)
		if code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("%s: %q, %s", c.line, code, out)
		}
	}
}

func TestFleetVMs(t *testing.T) {
	l := newFleetLab(t)
	create := func(project, name string, more ...string) string {
		out, code := l.run(append([]string{"vm", "create", "-p", project, "-n", name, "-i", "micro", "-s", "small"},
			more...)...)
		if code != "" {
			t.Fatalf("create %s: %s", name, code)
		}
		return out
	}
	create("atlas", "web", "--count", "2", "--tag", "tier=front")
	create("cms", "web-1")
	made := strings.Fields(create("cms", "db", "--expires", "2d"))
	if d := cmp.Diff([]string{"atlas/web-1", "atlas/web-2", "cms/db", "cms/web-1"}, l.names()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"atlas/web-1", "atlas/web-2"}, l.names("--tag", "tier=front")); d != "" {
		t.Error(d)
	}
	if info, err := os.Stat(keyFile(made[1])); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the private key: %v, %v", info, err)
	}
	for _, c := range []struct{ line, code string }{
		{"vm show web-1", "usage"}, // of two projects
		{"vm show atlas/web-1", ""},
		{"vm show -p atlas web-1", ""},
		{"vm show " + made[1], ""},
		{"vm show db", ""},
		{"vm show none", "no-vm"},
		{"vm show atlas/none", "no-vm"},
		{"vm stop [", "usage"},
		{"vm resize db", "usage"},
		{"vm create -n x -i micro -s small", "usage"},
		{"vm create -p none -n x -i micro -s small", "no-project"},
		{"vm create -p cms -n x -i micro -s none", "no-shape"},
		{"vm create -p cms -n x -i micro -s small --expires yesterday", "usage"},
		{"vm create -p cms -n x -i micro -s small --key /nonexistent", "usage"},
		{"why db", ""},
		{"vm connect db 0", "usage"},
		{"vm delete --wait web-* db", ""},
	} {
		if _, code := l.run(strings.Fields(c.line)...); code != c.code {
			t.Errorf("%s: %q, want %q", c.line, code, c.code)
		}
	}
	if left := l.names(); left != nil {
		t.Errorf("%v are left", left)
	}
	if _, err := os.Stat(keyFile(made[1])); err == nil {
		t.Error("the private key of a VM that is gone is still there")
	}
}

// TestWhereVMsAre: the agent is asked where there is no server, where its socket is named, and with --local.
func TestWhereVMsAre(t *testing.T) {
	l := newFleetLab(t)
	if _, code := l.run("vm", "list", "--local", "--socket", "/nonexistent"); code != "no-agent" {
		t.Errorf("--local: %q", code)
	}
	t.Setenv("GRANGE_SOCKET", "/nonexistent")
	a := &app.App{Out: l.t.Output(), Err: l.t.Output()}
	root := a.Tree(app.Group{Title: "Virtual machines", Commands: Commands(a)})
	root.SetArgs([]string{"vm", "list"})
	if _, err := root.ExecuteContextC(t.Context()); app.CodeOf(err) != "no-agent" {
		t.Errorf("$GRANGE_SOCKET: %v", err)
	}
	t.Setenv("GRANGE_SERVER", "/nonexistent/server.sock")
	a = &app.App{Out: l.t.Output(), Err: l.t.Output()}
	root = a.Tree(app.Group{Title: "Virtual machines", Commands: Commands(a)})
	root.SetArgs([]string{"vm", "list"})
	if _, err := root.ExecuteContextC(t.Context()); app.CodeOf(err) != "no-server" {
		t.Errorf("$GRANGE_SERVER: %v", err)
	}
}

func TestSSHArguments(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", "/home/a b/100%")
	got := sshArguments("/opt/it's/grange", fleet.VM{ID: "5ea23910-1e13-49a1-abe9-e035da911c62", Name: "web-1"}, "root")
	want := []string{"-o",
		`ProxyCommand='/opt/it'\''s/grange' vm connect --wait 2m 5ea23910-1e13-49a1-abe9-e035da911c62 22`, "-o",
		"HostKeyAlias=5ea23910-1e13-49a1-abe9-e035da911c62",
		"-o", `UserKnownHostsFile="/home/a b/100%%/grange/known_hosts/5ea23910-1e13-49a1-abe9-e035da911c62"`, "-o",
		"GlobalKnownHostsFile=/dev/null",
		"-o", "StrictHostKeyChecking=accept-new", "-o", "CheckHostIP=no", "-l", "root", "--", "web-1"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
