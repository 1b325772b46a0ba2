package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/e2e/metal/metallab"
)

// ansible is what the role is run with, pinned by hash: ansible-core. To change it: uv pip compile --generate-hashes
// --python-version 3.11 --no-header --no-annotate.
//
//go:embed requirements.txt
var ansible []byte

// TestAnsible has the role set a bare host up, and then finds nothing to change.
func TestAnsible(t *testing.T) {
	long(t)
	t.Parallel()
	h := startBare(t, metallab.Options{})
	l, err := metallab.Open()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	venv := filepath.Join(cache, "grange", "ansible")
	if err := lab.Venv(t.Context(), venv, ansible); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	inventory := fmt.Sprintf(`all:
  hosts:
    metal:
      ansible_host: 127.0.0.1
      ansible_port: %d
      ansible_user: root
      ansible_ssh_private_key_file: %s
      ansible_ssh_common_args: -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ControlPath=%s/%%C
      ansible_python_interpreter: /usr/bin/python3
      grange_packages: [%s]
      grange_agent_toml: |
        [[policy]]
        name = "all"
        max_cpus = 2
`, h.Port(), l.KeyFile(), dir, strings.Join(agentDebs(t), ", "))
	if err := os.WriteFile(filepath.Join(dir, "inventory.yml"), []byte(inventory), 0o600); err != nil {
		t.Fatal(err)
	}
	play := func() string {
		cmd := exec.CommandContext(t.Context(), filepath.Join(venv, "bin", "ansible-playbook"), "-i",
			filepath.Join(dir, "inventory.yml"), "../../packaging/ansible/site.yml")
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(venv, "bin")+":"+os.Getenv("PATH"), "LC_ALL=C.UTF-8",
			"ANSIBLE_TIMEOUT=300", "ANSIBLE_NOCOLOR=1", "ANSIBLE_HOME="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	changed := regexp.MustCompile(`(?m)^metal .*\bchanged=(\d+) `)
	if out := play(); changed.FindStringSubmatch(out) == nil || changed.FindStringSubmatch(out)[1] == "0" {
		t.Errorf("the first run changed nothing:\n%s", out)
	}
	run(t, h, "systemctl -q is-active grange-agent && systemctl -q is-enabled grange-agent && grange exec --cpus 1 "+
		"-- true")
	if _, err := h.Run(t.Context(), "grange exec --cpus 3 -- true"); err == nil {
		t.Error("the policy is not in force")
	}
	if out := play(); changed.FindStringSubmatch(out) == nil || changed.FindStringSubmatch(out)[1] != "0" {
		t.Errorf("the second run changed something:\n%s", out)
	}
}
