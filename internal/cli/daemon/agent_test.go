package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/cli/app"
)

func TestAgentCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.toml")
	check := func(flags ...string) (string, error) {
		var out bytes.Buffer
		a := &app.App{Out: &out, Err: &out}
		root := a.Tree(app.Group{Title: "Hosts", Commands: AgentCommands(a)})
		root.SetArgs(append([]string{"agent", "--check", "--config", file}, flags...))
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	if out, err := check(); app.CodeOf(err) != "bad-config" || out != "" {
		t.Errorf("a file that is not there: %v %q", err, out)
	}
	sound := fmt.Sprintf("attempts = 2\nlibvirt = %q\nsocket = %q\n", file+".libvirt", file+".sock")
	if err := os.WriteFile(file, []byte(sound), 0o600); err != nil {
		t.Fatal(err)
	}
	want := file + " is sound\nQEMU    not known: libvirt does not answer on " + file +
		".libvirt\nagent   not known: no agent serves on " + file + ".sock\n"
	if out, err := check(); err != nil || out != want {
		t.Errorf("a sound file: %v %q", err, out)
	}
	users := t.TempDir()
	if err := os.Chmod(users, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, "%spull_images = [\"dir:%s/\"]\n", sound, users), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := check(); err != nil || !strings.Contains(out, "warning: pull_images: \"dir:"+users) {
		t.Errorf("a directory of pull_images that users may write to: %v %q", err, out)
	}
	if err := os.WriteFile(file, []byte(sound), 0o600); err != nil {
		t.Fatal(err)
	}
	var report agentCheck
	if out, err := check("--json"); err != nil || json.Unmarshal([]byte(out), &report) != nil || report.Default ||
		report.Config != file || !strings.HasPrefix(report.Agent, "not known: ") {
		t.Errorf("as JSON: %v %q", err, out)
	}
	if err := os.WriteFile(file, []byte("nonsense = 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := check(); app.CodeOf(err) != "bad-config" || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("an unknown key: %v", err)
	}
	worker := "[worker]\ncontroller = \"a:6817\"\nmunge_key = \"" + file +
		".key\"\nbridge = \"b0\"\naddresses = \"10.0.0.2-10.0.0.9/24\"\n"
	if err := os.WriteFile(file, []byte(worker), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := check(); app.CodeOf(err) != "bad-config" || !strings.Contains(err.Error(), "munge_key") {
		t.Errorf("a key that is not there: %v", err)
	}
	if err := os.WriteFile(file+".key", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := check(); err != nil {
		t.Errorf("a key that is there: %v", err)
	}
}

// TestReadOnly reads mounts as systemd's ProtectSystem= leaves them.
func TestReadOnly(t *testing.T) {
	const root, usr, over = "1 0 8:1 / / rw,relatime - ext4 x rw\n", "2 1 8:1 /usr /usr ro,relatime - ext4 x rw\n", "3 2 8:1 /usr /usr " +
		"rw - ext4 x rw\n"
	for text, want := range map[string]bool{root: false, root + usr: true, root + usr + over: false, "": false,
		"1 0 8:1 / / ro - ext4 x rw\n": true, root + "2 1 8:1 / /usrlocal ro - ext4 x rw\n": false} {
		if got, err := readOnly(strings.NewReader(text), "/usr"); got != want || err != nil {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
}
