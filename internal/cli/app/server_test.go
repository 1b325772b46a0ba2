package app

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

func TestFindServer(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("GRANGE_TOKEN_FILE", "")
	dir := filepath.Join(home, ".config", "grange")
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name), []byte(text), mode),
			os.Chmod(filepath.Join(dir, name), mode)); err != nil {
			t.Fatal(err)
		}
	}
	write("client.toml", "server = \"https://grange.example.org\"\ntoken_file = \"token\"\nca = \"/etc/ca.pem\"\n",
		0o644)
	write("token", "grt_a_b\n", 0o600)
	got, err := (&App{}).findServer()
	if d := cmp.Diff(fleet.Config{Server: "https://grange.example.org", Token: "grt_a_b", CA: "/etc/ca.pem"},
		got); d != "" || err != nil {
		t.Error(err, d)
	}
	got, err = (&App{Server: "https://other.example.org"}).findServer()
	if err != nil || got.Token != "" || got.Server != "https://other.example.org" {
		t.Errorf("another server is shown %+v, %v", got, err)
	}
	write("token", "grt_a_b\n", 0o644)
	if _, err = (&App{}).findServer(); CodeOf(err) != string(CodeBadToken) {
		t.Errorf("a token that others can read: %v", err)
	}
	write("client.toml", "servers = \"x\"\n", 0o644)
	if _, err = (&App{}).findServer(); CodeOf(err) != string(farm.CodeBadConfig) {
		t.Errorf("an unknown key: %v", err)
	}
}
