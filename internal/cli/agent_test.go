package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAgentCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.toml")
	check := func() (string, error) {
		var out bytes.Buffer
		root := (&app{out: &out, err: &out}).root()
		root.SetArgs([]string{"agent", "--check", "--config", file})
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	if out, err := check(); codeOf(err) != "bad-config" || out != "" {
		t.Errorf("a file that is not there: %v %q", err, out)
	}
	if err := os.WriteFile(file, []byte("attempts = 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := check(); err != nil || out != file+" is sound\n" {
		t.Errorf("a sound file: %v %q", err, out)
	}
	if err := os.WriteFile(file, []byte("nonsense = 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := check(); codeOf(err) != "bad-config" || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("an unknown key: %v", err)
	}
	worker := "[worker]\ncontroller = \"a:6817\"\nmunge_key = \"" + file + ".key\"\nbridge = \"b0\"\naddresses = \"10.0.0.2-10.0.0.9/24\"\n"
	if err := os.WriteFile(file, []byte(worker), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := check(); codeOf(err) != "bad-config" || !strings.Contains(err.Error(), "munge_key") {
		t.Errorf("a key that is not there: %v", err)
	}
	if err := os.WriteFile(file+".key", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := check(); err != nil {
		t.Errorf("a key that is there: %v", err)
	}
}
